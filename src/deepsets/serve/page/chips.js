// The field of members: chips, and an entry that completes (the combobox pattern of ARIA).

import { ask } from "./api.js";
import { $, el, listed, long, say, tell } from "./dom.js";

const WAIT = 90; // ms after the last key before the server is asked

export class Chips {
  #query;
  #model;
  #active = -1;
  #offered = [];
  #timer = 0;
  #asked = null;
  #entered = Promise.resolve(); // the last word committed: words are added in the order they were typed

  constructor(query, model) {
    this.#query = query;
    this.#model = model;
    const entry = $("entry");
    entry.addEventListener("input", () => this.#typed());
    entry.addEventListener("keydown", (event) => this.#key(event));
    entry.addEventListener("paste", (event) => this.#paste(event));
    entry.addEventListener("blur", () => this.#close());
    $("options").addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the entry keeps the focus
      const option = event.target.closest("[role=option]");
      if (option) this.#take(this.#offered[Number(option.dataset.place)]);
    });
    $("field").addEventListener("click", (event) => event.target === $("field") && entry.focus());
    $("chips").addEventListener("keydown", (event) => this.#chipKey(event));
  }

  // ------------------------------------------------------------------------------------------------ the members

  draw() {
    const members = this.#query.members;
    const chips = $("chips");
    const kept = new Map([...chips.children].map((chip) => [chip.dataset.element, chip]));
    chips.replaceChildren(...members.map((member) => kept.get(member) ?? this.#chip(member)));
    chips.hidden = members.length === 0;
    $("entry").placeholder = members.length ? "and …" : "lion, tiger, …";
  }

  /** fits: a map from member to {fit, share}; odd: the member that belongs least; unknown: those no model knows. */
  judge({ fits = new Map(), odd = null, unknown = [] } = {}) {
    for (const chip of $("chips").children) {
      const member = chip.dataset.element;
      const found = fits.get(member);
      const strange = unknown.includes(member);
      chip.classList.toggle("odd", member === odd);
      chip.classList.toggle("unknown", strange);
      chip.querySelector(".meter").hidden = !found;
      long(chip.querySelector(".meter i"), found?.share ?? 0);
      chip.querySelector(".mark").textContent = member === odd ? "odd one?" : strange ? "not known" : "";
      const fit = found ? `fits ${tell(found.fit)}${member === odd ? ", the least of all" : ""}` : "";
      chip.querySelector(".hidden").textContent = fit && `, ${fit}`;
      chip.title = fit;
    }
  }

  #chip(member) {
    return el("li", { class: "chip", "data-element": member },
      el("span", { class: "name" }, member), el("span", { class: "hidden" }), el("small", { class: "mark" }),
      el("button", { type: "button", "aria-label": `Remove ${member}`, onclick: () => this.#remove(member) }, "×"),
      el("span", { class: "meter", "aria-hidden": "true", hidden: true }, el("i")));
  }

  #remove(member) {
    const place = this.#query.members.indexOf(member);
    this.#query.remove(member);
    say(`Removed ${member}.`);
    const buttons = $("chips").querySelectorAll("button");
    (buttons[Math.min(place, buttons.length - 1)] ?? $("entry")).focus();
  }

  #chipKey(event) {
    const buttons = [...$("chips").querySelectorAll("button")];
    const place = buttons.indexOf(event.target);
    if (event.key === "ArrowLeft" && place > 0) buttons[place - 1].focus();
    else if (event.key === "ArrowRight") (buttons[place + 1] ?? $("entry")).focus();
    else if (event.key === "Delete" || event.key === "Backspace") this.#remove(this.#query.members[place]);
    else return;
    event.preventDefault();
  }

  // -------------------------------------------------------------------------------------------------- the entry

  #add(words) {
    const fresh = this.#query.add(words);
    say(fresh.length ? `Added ${listed(fresh)}.` : `${listed(words)} is there already.`);
  }

  #take(element) {
    $("entry").value = "";
    this.#close();
    this.#add([element]);
  }

  /** What was typed or pasted, up to the last separator if `open`; spelt as the vocabulary spells it. */
  #commit(open = false) {
    const words = $("entry").value.split(/[,;\n\t]/);
    const rest = open ? words.pop() : "";
    const wanted = words.map((word) => word.trim().replace(/^"(.*)"$/, "$1")).filter(Boolean);
    $("entry").value = rest.trimStart();
    this.#close();
    if (!wanted.length) return;
    const spelt = Promise.all(wanted.map((word) => this.#spelling(word)));
    this.#entered = this.#entered.then(async () => this.#add(await spelt));
  }

  async #spelling(word) {
    const near = await this.#complete(word).catch(() => []);
    const same = near.find((element) => element.toLowerCase() === word.toLowerCase());
    return near.includes(word) ? word : same ?? word;
  }

  async #complete(prefix, signal) {
    const asked = new URLSearchParams({ model: this.#model, prefix, limit: 8 });
    return (await ask(`v1/complete?${asked}`, null, signal)).elements.map(String);
  }

  #paste(event) {
    const text = event.clipboardData.getData("text");
    if (!/[,;\n\t]/.test(text)) return;
    event.preventDefault();
    $("entry").value += text.replace(/[\r\n]+/g, ","); // an input of one line drops the breaks
    this.#commit();
  }

  #typed() {
    if (/[,;]/.test($("entry").value)) return void this.#commit(true);
    clearTimeout(this.#timer);
    if ($("entry").value.trim()) this.#timer = setTimeout(() => this.#offer(), WAIT);
    else this.#close();
  }

  async #offer() {
    this.#asked?.abort();
    this.#asked = new AbortController();
    const typed = $("entry").value.trim();
    let found = [];
    try {
      found = await this.#complete(typed, this.#asked.signal);
    } catch {
      return; // completion is a help: without it one can still type
    }
    if ($("entry").value.trim() !== typed || document.activeElement !== $("entry")) return;
    this.#offered = found.filter((element) => !this.#query.members.includes(element));
    this.#active = -1;
    $("options").replaceChildren(...this.#offered.map((element, place) =>
      el("li", { role: "option", id: `option-${place}`, "data-place": place, "aria-selected": "false" },
        ...emphasised(element, typed))));
    this.#show(this.#offered.length > 0);
    if (this.#offered.length) say(`${this.#offered.length} completions.`);
  }

  #show(open) {
    $("options").hidden = !open;
    $("entry").setAttribute("aria-expanded", String(open));
    if (!open) $("entry").removeAttribute("aria-activedescendant");
  }

  #close() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
    this.#active = -1;
    this.#show(false);
  }

  #step(by) {
    const count = this.#offered.length;
    this.#active = this.#active < 0 && by < 0 ? count - 1 : (this.#active + by + count) % count;
    for (const [place, option] of [...$("options").children].entries()) {
      option.setAttribute("aria-selected", String(place === this.#active));
    }
    const active = $(`option-${this.#active}`);
    $("entry").setAttribute("aria-activedescendant", active.id);
    active.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const open = !$("options").hidden;
    const empty = $("entry").value === "";
    if (event.isComposing) return;
    if (open && event.key === "ArrowDown") this.#step(1);
    else if (open && event.key === "ArrowUp") this.#step(-1);
    else if (open && event.key === "Escape") this.#close();
    else if (event.key === "Enter" && open && this.#active >= 0) this.#take(this.#offered[this.#active]);
    else if (event.key === "Enter" && !empty) this.#commit();
    else if (event.key === "Backspace" && empty && this.#query.members.length) {
      const last = this.#query.members.at(-1);
      this.#query.remove(last);
      say(`Removed ${last}.`);
    } else if (event.key === "ArrowLeft" && empty) [...$("chips").querySelectorAll("button")].at(-1)?.focus();
    else return;
    event.preventDefault();
  }
}

function emphasised(element, typed) {
  const at = element.toLowerCase().indexOf(typed.toLowerCase());
  if (at < 0) return [element];
  const end = at + typed.length;
  return [element.slice(0, at), el("b", {}, element.slice(at, end)), element.slice(end)];
}
