// Elements, made from names and values; text is always text, never markup.

export const $ = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";

/** el("li", {class: "chip", onclick: f}, "lion", el("b", {}, "!")) */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** A polite word to screen readers; the second of two equal ones is heard too. */
export function say(sentence) {
  const status = $("status");
  status.textContent = status.textContent === sentence ? `${sentence}\u00a0` : sentence;
}

/** What went wrong, for all to see, in the view that is open; nothing, to take it back. */
export function complain(sentence = "") {
  const here = document.querySelector("main > section:not([hidden]) > .problem") ?? $("problem");
  for (const place of document.querySelectorAll(".problem")) place.textContent = place === here ? sentence : "";
}

/** Numbers for people: three digits of the largest beside it (by default its own), a real minus. */
export function tell(number, largest = number) {
  if (number == null || !Number.isFinite(number)) return "–";
  const size = Math.floor(Math.log10(Math.abs(largest) || 1));
  const text = size < -5 || size > 6 ? number.toExponential(1) : number.toFixed(Math.max(0, 2 - size));
  return text.replaceAll("-", "−");
}

export const signed = (number, largest) => (number > 0 ? "+" : "") + tell(number, largest);

/** A bar is as long as a property of its style says. */
export function long(node, share) {
  node.style.setProperty("--share", share.toFixed(4));
  return node;
}

export const percent = (share) => (share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);

/** "1 member", "2 members" */
export const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** "lion, tiger and puma" */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
