// What a page must have so that all can use it; gives a list of sentences, one for each fault.
() => {
  const faults = [];
  const fault = (node, what) => faults.push(`${what}: ${node.outerHTML.slice(0, 120)}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: false });
  const words = (text) => (text ?? "").replace(/\s+/g, " ").trim();

  // ---- the document
  if (!document.documentElement.lang) faults.push("the document names no language");
  if (!words(document.title)) faults.push("the document has no title");
  if (!document.querySelector("meta[name=viewport]") || /user-scalable=no|maximum-scale/.test(document.querySelector("meta[name=viewport]").content)) {
    faults.push("the page cannot be zoomed");
  }
  for (const landmark of ["header", "main", "footer"]) {
    if (all(`body > ${landmark}`).length !== 1) faults.push(`wanted one ${landmark}`);
  }
  for (const node of all("body > *").filter(seen)) {
    if (!node.matches("header, main, footer, dialog, .skip, [role=status]")) fault(node, "stands outside the landmarks");
  }
  const headings = all("h1, h2, h3, h4, h5, h6").filter(seen);
  if (headings.filter((node) => node.tagName === "H1").length !== 1) faults.push("wanted one h1");
  headings.reduce((before, node) => {
    const level = Number(node.tagName[1]);
    if (level > before + 1) fault(node, "a level of headings is left out");
    if (!words(node.textContent)) fault(node, "an empty heading");
    return level;
  }, 0);
  const ids = all("[id]").map((node) => node.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) faults.push(`the id ${id} is there twice`);
  for (const node of all("img")) if (!node.hasAttribute("alt")) fault(node, "a picture without alt");

  // ---- roles, names, references
  const roles = "alert status combobox listbox option list region group img".split(" ");
  for (const node of all("[role]")) if (!roles.includes(node.getAttribute("role"))) fault(node, "a role that is not expected");
  const known = "label labelledby describedby hidden live current pressed selected expanded controls autocomplete activedescendant busy keyshortcuts".split(" ");
  for (const node of all("*")) {
    for (const { name, value } of node.attributes) {
      if (name.startsWith("aria-") && !known.includes(name.slice(5))) fault(node, `${name} is not expected`);
      if (/^(aria-(labelledby|describedby|controls|activedescendant)|for)$/.test(name)) {
        for (const id of value.split(" ")) if (!document.getElementById(id)) fault(node, `${name} points to nothing`);
      }
      if (name === "style" && node.getAttribute("style").includes("url(")) fault(node, "a style that loads something");
    }
  }
  const spoken = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || node.getAttribute("aria-hidden") === "true" || node.hidden) return "";
    return node.getAttribute("aria-label") ?? node.alt ?? [...node.childNodes].map(spoken).join("");
  };
  const called = (node) => {
    const ids = node.getAttribute("aria-labelledby");
    if (ids) return ids.split(" ").map((id) => spoken(document.getElementById(id))).join(" ");
    if (node.getAttribute("aria-label")) return node.getAttribute("aria-label");
    if (node.labels?.length) return [...node.labels].map(spoken).join(" ");
    return node.matches("input") ? "" : spoken(node);
  };
  const controls = all("a[href], button, input, select, textarea, summary, [tabindex='0'], [role=option]").filter(seen);
  for (const node of controls) if (!words(called(node))) fault(node, "a control without a name");
  for (const node of all("section, nav, [role=region], [role=group], [role=listbox], [role=img]")) {
    if (seen(node) && !words(called(node)) && node.matches("[role]")) fault(node, "a part without a name");
  }
  for (const node of controls) {
    const box = (node.matches("input[type=file]") ? node.parentElement : node).getBoundingClientRect();
    const inText = node.matches("p a");
    if (!inText && !node.matches(".skip, input[type=range]") && (box.width < 24 || box.height < 24)) fault(node, "a target below 24 pixels");
    if (node.tabIndex > 0) fault(node, "a tabindex that changes the order");
  }
  for (const node of all("ul, ol")) {
    for (const child of node.children) if (child.tagName !== "LI") fault(node, "a list of other things than items");
  }
  for (const node of all("[role=listbox]")) {
    for (const child of node.children) if (child.getAttribute("role") !== "option") fault(node, "a listbox of other things than options");
  }
  for (const node of all("table")) if (!node.querySelector("thead th[scope=col]")) fault(node, "a table without heads");

  // ---- contrast: what is painted below each piece of text, bars included
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const faded = (node) => (node ? Number(getComputedStyle(node).opacity) * faded(node.parentElement) : 1);
  const below = (node, x, y) => {
    const stack = document.elementsFromPoint(x, y);
    const from = stack.findIndex((one) => one === node || node.contains(one));
    if (from < 0) return null;
    return stack.slice(from).reverse().reduce((ground, one) => over(rgba(getComputedStyle(one).backgroundColor), ground), [255, 255, 255]);
  };
  let least = 21;
  const judge = (node, box, style) => {
    const colour = rgba(style.color);
    colour[3] *= faded(node);
    const size = parseFloat(style.fontSize);
    const wanted = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    for (const share of [0.05, 0.5, 0.95]) {
      const ground = below(node, box.left + share * box.width, box.top + box.height / 2);
      if (!ground) continue;
      const found = contrast(over(colour, ground), ground);
      least = Math.min(least, found);
      if (found < wanted) fault(node, `a contrast of ${found.toFixed(2)}`);
    }
  };
  const judged = {}; // of texts of one kind, as the cells of a table are, some speak for all
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!words(texts.currentNode.data) || !seen(node) || node.closest(".hidden, .skip, :disabled, script, noscript")) continue;
    const kind = `${node.tagName}.${node.className} ${node.parentElement.className} ${getComputedStyle(node).color}`;
    judged[kind] = (judged[kind] ?? 0) + 1;
    if (judged[kind] > 12) continue;
    node.scrollIntoView({ block: "center", behavior: "instant" });
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    judge(node, range.getBoundingClientRect(), getComputedStyle(node));
  }
  for (const node of all("input[placeholder]").filter(seen)) judge(node, node.getBoundingClientRect(), getComputedStyle(node, "::placeholder"));
  scrollTo(0, 0);
  return { faults: [...new Set(faults)], least, controls: controls.length };
}
