// What every member contributes: bars over and under zero, and the same as a table.

import { el, long, signed, svg, tell } from "./dom.js";

const FEW = 60; // so many members stand in their own order, more are sorted by what they contribute
const ROWS = 200; // of the table; the plot shows all

/** values: a number for each member. Calls `point(place or null)` while the pointer is over a bar. */
export function plot(values, name, what, point = () => {}) {
  const order = [...values.keys()];
  if (values.length > FEW) order.sort((a, b) => values[b] - values[a]);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const span = high - low || 1;
  const gap = values.length > FEW ? -0.05 : 0.24; // thin bars with gaps would flicker
  const bars = order.map((member, place) =>
    svg("rect", { x: place + gap / 2, width: 1 - gap, y: (high - Math.max(0, values[member])) / span,
      height: Math.max(Math.abs(values[member]) / span, 0.004), class: values[member] < 0 ? "down" : "up" }));
  const best = order.reduce((a, b) => (Math.abs(values[b]) > Math.abs(values[a]) ? b : a), 0);
  const picture = svg("svg", { viewBox: `0 0 ${values.length} 1`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${what} of ${values.length} members; the largest is ${signed(values[best])}, of ${name(best)}. The table says all.` },
    ...bars, svg("rect", { x: 0, width: values.length, y: high / span - 0.002, height: 0.004, class: "zero" }));
  picture.style.maxWidth = `${6 * values.length}rem`;
  const rest = values.length > FEW ? "Largest first." : "In the order of the rows.";
  const caption = el("figcaption", { class: "quiet" }, rest);
  const at = (event) => {
    const box = picture.getBoundingClientRect();
    const place = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * values.length)));
    bars.forEach((bar, i) => bar.classList.toggle("on", i === place));
    caption.textContent = `${name(order[place])}: ${signed(values[order[place]], span)}`;
    point(order[place]);
  };
  picture.addEventListener("pointermove", at);
  picture.addEventListener("pointerdown", at);
  picture.addEventListener("pointerleave", () => {
    bars.forEach((bar) => bar.classList.remove("on"));
    caption.textContent = rest;
    point(null);
  });
  const ends = [high, low].map((end) => el("span", {}, end ? signed(end) : ""));
  const axis = el("div", { class: "axis", "aria-hidden": "true" }, ...ends);
  return el("figure", { class: "plot" }, el("div", { class: "frame" }, axis, picture), caption);
}

/** Filled when it is opened first: a cloud has a thousand rows. */
export function table(values, rows, columns, name, what) {
  const body = el("tbody");
  const order = [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, ROWS);
  const most = Math.abs(values[order[0]]) || 1;
  const fill = () => body.childElementCount || body.append(...order.map((member) => {
    const bar = el("i", { class: values[member] < 0 ? "down" : "up", "aria-hidden": "true" });
    long(bar, Math.abs(values[member]) / most);
    return el("tr", {}, el("th", { scope: "row" }, name(member)),
      ...columns.map((_, place) => el("td", {}, tell(rows[member][place]))),
      el("td", {}, signed(values[member], most)), el("td", { class: "beam" }, bar));
  }));
  const heads = ["Member", ...columns, what].map((head) => el("th", { scope: "col" }, head));
  heads.push(el("td", {}));
  const title = values.length > ROWS ? `The ${ROWS} members that count most, as a table` : `All ${values.length} members as a table`;
  const folded = el("details", { class: "numbers" }, el("summary", {}, title),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)));
  folded.addEventListener("toggle", fill);
  if (values.length <= 24) {
    folded.open = true;
    fill();
  }
  return folded;
}
