// A model of sets: a CSV file or an example in, the answer and every member's part in it out.

import { ask } from "./api.js";
import { Cloud } from "./cloud.js";
import { members } from "./csv.js";
import { $, complain, counted, el, long, percent, say, tell } from "./dom.js";
import { plot, table } from "./plot.js";
import { writeAddress } from "./state.js";

const CLASSES = 10; // so many of the likeliest are shown

export class Estimator {
  #model;
  #names;
  #given = null; // {rows, columns, labels, called}
  #asked = null;

  constructor() {
    $("file").addEventListener("change", () => this.#read($("file").files[0]));
    $("z").addEventListener("change", () => this.#given && this.#ask());
    const drop = $("drop");
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.#read(event.dataTransfer.files[0]);
    });
  }

  /** Shows the model; an example as well, if the address names one. */
  open(model, example = null) {
    this.#asked?.abort();
    this.#model = model;
    this.#names = Array.isArray(model.features) ? model.features : [];
    this.#given = null;
    $("estimate-title").textContent = model.name;
    $("estimate-about").textContent = model.about.charAt(0).toUpperCase() + model.about.slice(1);
    $("wanted").textContent = this.#wanted();
    $("context").hidden = !model.context;
    $("z-label").textContent = `What is known of the whole set (${counted(model.context, "number")})`;
    $("z").value = "";
    $("answer").replaceChildren();
    const examples = model.examples;
    $("samples").hidden = !examples.length;
    $("samples").querySelector("div").replaceChildren(...examples.map((rows, place) =>
      el("button", { type: "button", onclick: () => this.#example(place) }, `Example ${place + 1}`,
        el("small", {}, ` ${counted(rows.length, "member")}`))));
    if (example !== null && examples[example]) this.#example(example);
  }

  #wanted() {
    if (this.#names.length) return `Columns: ${this.#names.join(", ")}. A column of words names the members.`;
    return this.#width ? `${this.#width} columns of numbers. A column of words names the members.` : "One column of words.";
  }

  get #width() {
    return Array.isArray(this.#model.features) ? this.#model.features.length : this.#model.features ?? 0;
  }

  get #tokens() {
    return this.#model.features === null;
  }

  #example(place) {
    const rows = this.#model.examples[place];
    const columns = this.#tokens ? [] : rows[0].map((_, i) => this.#names[i] ?? `x${i + 1}`);
    this.#take({ rows, columns, labels: this.#tokens ? rows : null, called: `Example ${place + 1}` });
    writeAddress({ model: [this.#model.name], example: [String(place + 1)] });
    for (const [i, button] of [...$("samples").querySelectorAll("button")].entries()) {
      button.setAttribute("aria-pressed", String(i === place));
    }
  }

  async #read(file) {
    if (!file) return;
    complain();
    $("file").value = "";
    for (const button of $("samples").querySelectorAll("button")) button.setAttribute("aria-pressed", "false");
    try {
      const read = members(await file.text(), { features: this.#names, width: this.#width, tokens: this.#tokens });
      this.#take({ ...read, called: file.name });
      writeAddress({ model: [this.#model.name] });
    } catch (error) {
      $("answer").replaceChildren();
      complain(`${file.name}: ${error.message}`);
    }
  }

  #take(given) {
    this.#given = given;
    return this.#ask();
  }

  #context() {
    const numbers = $("z").value.split(/[\s,;]+/).filter(Boolean).map(Number);
    if (numbers.length !== this.#model.context || !numbers.every(Number.isFinite)) {
      throw new Error(`The model wants ${counted(this.#model.context, "number")} for the whole set; found “${$("z").value}”.`);
    }
    return [numbers];
  }

  async #ask() {
    complain();
    this.#asked?.abort();
    const { signal } = (this.#asked = new AbortController());
    try {
      const body = { model: this.#model.name, sets: [this.#given.rows] };
      if (this.#model.context) body.z = this.#context();
      const explains = this.#model.abilities.includes("explain");
      const [answer, parts] = await Promise.all([
        ask("v1/predict", body, signal),
        explains ? ask("v1/explain", body, signal) : null,
      ]);
      if (!signal.aborted) this.#show(answer, parts?.contributions[0]);
    } catch (error) {
      if (signal.aborted) return;
      $("answer").replaceChildren();
      complain(error.message);
    }
  }

  // ----------------------------------------------------------------------------------------------- the answer

  #show(answer, parts) {
    const { rows, called } = this.#given;
    const prediction = answer.predictions[0];
    const shares = answer.probabilities?.[0];
    const perMember = Array.isArray(prediction) && prediction.length === rows.length && /member/.test(this.#model.task);
    const odd = /odd/.test(this.#model.task);
    const told = odd ? this.#name(prediction) : perMember ? `${rows.length} answers` : [prediction].flat().map(spelt).join(", ");
    const of = `${called}, ${counted(rows.length, "member")}`;
    const out = [el("div", { class: "verdict" }, el("h2", { class: "quiet" }, odd ? "The odd one" : "Prediction"),
      el("p", { class: "big" }, told), el("p", { class: "quiet" }, of))];
    if (perMember || odd) out.push(...this.#each(odd ? shares : prediction, odd ? "Probability" : "Prediction"));
    else if (parts) out.push(...this.#parts(parts, prediction, shares));
    $("answer").replaceChildren(...out);
    say(`${this.#model.name}: ${told}, for ${of}.`);
  }

  #each(values, what) {
    if (!values?.every((value) => typeof value === "number")) {
      const rows = values?.map((value, place) => el("li", {}, `${this.#name(place)}: ${spelt(value)}`)) ?? [];
      return rows.length ? [el("ol", { class: "card" }, ...rows)] : [];
    }
    return [this.#card(`${what} of each member`, plot(values, (i) => this.#name(i), what), this.#table(values, what))];
  }

  /** parts: for each member a number, or one for each output; those of one output are shown at a time. */
  #parts(parts, prediction, shares) {
    const outputs = Array.isArray(parts[0]) ? parts[0].length : 1;
    const classes = this.#model.classes ?? [];
    const known = classes.map(String).indexOf(String(prediction));
    const of = (output) => parts.map((part) => (Array.isArray(part) ? part[Math.min(output, part.length - 1)] : part));
    const start = outputs > 1 ? Math.max(0, known) : 0;
    const cloud = classes.length && this.#width === 3 ? new Cloud(this.#given.rows, critical(parts.length)) : null;
    const box = el("div", { class: "stack" });
    const show = (output) => {
      const values = of(output);
      cloud?.explain(values);
      const what = outputs > 1 ? classes[output] ?? output + 1 : classes.at(-1);
      const bars = plot(values, (i) => this.#name(i), "Contribution", (i) => cloud?.point(i));
      box.replaceChildren(this.#card(what === undefined ? "What each member adds" : `What each member adds to “${what}”`,
        bars, this.#table(values, "Contribution")));
      for (const bar of document.querySelectorAll(".shares button")) {
        bar.setAttribute("aria-pressed", String(bar.dataset.place === String(output)));
      }
    };
    const out = [];
    if (cloud) out.push(this.#space(cloud, parts.length));
    if (shares) out.push(this.#shares(shares, classes, outputs > 1 ? show : null, start));
    show(start);
    return [el("div", { class: cloud ? "pair" : "stack" }, ...out), box];
  }

  #space(cloud, count) {
    const most = Math.min(count, 200);
    const tell = el("output", { for: "marked" }, String(critical(count)));
    const slider = el("input", { type: "range", id: "marked", min: 0, max: most, value: critical(count) });
    slider.addEventListener("input", () => {
      cloud.mark(Number(slider.value));
      tell.textContent = slider.value;
    });
    return this.#card("The cloud", cloud.canvas, el("p", { class: "slide quiet" },
      el("label", { for: "marked" }, el("i", { class: "key", "aria-hidden": "true" }), "Critical members marked"), slider, tell));
  }

  #shares(shares, classes, choose, start) {
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, CLASSES);
    const rows = order.map((place) => {
      const inside = [long(el("i", { "aria-hidden": "true" }), Math.max(0.01, shares[place])),
        el("span", { class: "name" }, String(classes[place] ?? place)), el("span", { class: "score" }, percent(shares[place]))];
      const pressed = { type: "button", "data-place": place, "aria-pressed": String(place === start), onclick: () => choose(place) };
      return el("li", {}, choose ? el("button", pressed, ...inside) : el("div", {}, ...inside));
    });
    const help = choose ? el("p", { class: "quiet" }, "Choose a class to see what speaks for it.") : null;
    return this.#card("Probabilities", el("ul", { class: "shares bars" }, ...rows), help);
  }

  #table(values, what) {
    return table(values, this.#given.rows, this.#given.columns.slice(0, 8), (i) => this.#name(i), what);
  }

  #card(title, ...content) {
    return el("section", { class: "card" }, el("h2", {}, title), ...content);
  }

  #name(place) {
    return this.#given.labels?.[place] ?? `member ${place + 1}`;
  }
}

const critical = (count) => Math.min(count, Math.max(6, Math.round(0.04 * count)));

const spelt = (value) => (typeof value === "number" && !Number.isInteger(value) ? tell(value) : String(value));
