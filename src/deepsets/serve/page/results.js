// One column for each expander: what it would add, how well the members fit, and what it cannot answer.

import { ask } from "./api.js";
import { el, listed, long, say, tell } from "./dom.js";

const STEP = 10; // additions at first, and with each "more"
const MOST = 50; // additions, and members that are asked for one by one

const KNOWN = {
  SetExpander: ["Deep Sets", "Has learnt from whole sets what makes members belong together."],
  BayesianSets: ["Bayesian Sets", "How much likelier an element is once the set has been seen. Nothing is trained."],
  BlendedExpander: ["Blend", "Weighs common sets, near vectors and frequency, as it has learnt from the sets."],
  NearestVectors: ["Nearest vectors", "The elements whose vectors are closest to those of the set."],
  Expander: ["Best answers", "Weighs several methods by what they found of members that were held out."],
};

// The expanders of English words share a class; their names tell them apart.
const WORDS = {
  blend: ["Best answers", "Weighs near vectors, common concepts and frequency."],
  "bayesian-sets": KNOWN.BayesianSets, "nearest-vectors": KNOWN.NearestVectors, "deep-sets": KNOWN.SetExpander,
};

export class Column {
  #model;
  #query;
  #lead;
  #k = STEP;
  #asked = null;
  #list;
  #note;
  #more;

  constructor(model, query, place, alone) {
    this.#model = model;
    this.#query = query;
    this.#lead = place === 0; // gives its reasons
    const words = model.class === "WordExpander" ? WORDS[model.name] : null;
    const [title, about] = words ?? KNOWN[model.class] ?? [model.name, ""];
    const id = `column-${place}`;
    this.#list = el("ol", { "aria-labelledby": id });
    this.#note = el("p", { class: "note" });
    this.#more = el("button", { type: "button", class: "more", hidden: true, onclick: () => this.#longer() }, "Show more");
    this.root = el("section", { class: "column", "aria-labelledby": id, "data-model": model.name },
      el("h2", { id }, words || alone(model.class) ? title : `${title}: ${model.name}`),
      el("p", { class: "about quiet" }, about, el("span", { class: "state" }, " Looking …")), this.#note, this.#list, el("div", { class: "foot" }, this.#more, el("p", { class: "quiet" }, upper(model.about))));
    this.root.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Asks for the query as it is; gives what it says of the members, or null if it was overtaken. */
  async update() {
    this.#asked?.abort();
    const asked = (this.#asked = new AbortController());
    const members = [...this.#query.members];
    if (!members.length) {
      this.root.removeAttribute("aria-busy");
      this.#show([]);
      return {};
    }
    this.root.setAttribute("aria-busy", "true");
    try {
      const found = await this.#answer(members, asked.signal);
      if (asked.signal.aborted) return null;
      this.#show(found.candidates);
      return { ...found, ...ruled(found) };
    } catch (error) {
      if (asked.signal.aborted) return null;
      this.#show([]);
      return { note: error.message, unknown: error.ofQuestion && members.length === 1 ? members : [] };
    } finally {
      if (asked === this.#asked) this.root.removeAttribute("aria-busy");
    }
  }

  /** What it cannot answer, where the other columns do not say the same. */
  note(sentence = "") {
    this.#note.textContent = sentence;
  }

  async #answer(members, signal) {
    const model = this.#model.name;
    const query = this.#query.spelt(members);
    const why = this.#lead && members.length <= MOST;
    const { candidates, unknown, reasons = [] } = await ask("v1/expand", { model, query, k: this.#k, why }, signal);
    reasons.forEach((reason, place) => (candidates[place].why = because(reason, query)));
    const missing = members.filter((_, place) => unknown.some(({ element }) => element === query[place]));
    const known = members.filter((member) => !missing.includes(member));
    const judged = known.length > 1
      ? await ask("v1/fits", { model, query: this.#query.spelt(known) }, signal).catch(none) : await none();
    const note = unknown.length ? `Not in the vocabulary and left out: ${unknown.map(named).join("; ")}.` : undefined;
    return {
      candidates, note, unknown: missing, odd: known[judged.odd] ?? null,
      fits: new Map(judged.fits.map((fit, place) => [known[place], fit])),
    };
  }

  #show(candidates) {
    const active = document.activeElement;
    const place = [...this.#list.children].findIndex((row) => row.contains(active));
    const [low, high] = ruler(candidates.map((candidate) => candidate.score));
    const rows = candidates.map(({ element, score, why }) =>
      this.#row(String(element), tell(score, high), share(score, low, high), why));
    this.#list.replaceChildren(...rows);
    this.#list.hidden = !rows.length;
    this.#more.hidden = candidates.length < this.#k || this.#k >= MOST;
    if (place >= 0) rows[Math.min(place, rows.length - 1)]?.firstChild.focus({ preventScroll: true });
  }

  #row(element, score, width, why) {
    const button = el("button", { type: "button", "data-element": element, onclick: () => this.#take(element) },
      long(el("i", { "aria-hidden": "true" }), width), el("span", { class: "plus", "aria-hidden": "true" }, "+"),
      el("span", { class: "hidden" }, "Add "), el("span", { class: "name" }, element),
      why ? el("span", { class: "hidden" }, ", ") : null, why ? el("span", { class: "why" }, why) : null,
      el("span", { class: "hidden" }, ", score "), el("span", { class: "score" }, score));
    return el("li", {}, button);
  }

  #take(element) {
    this.#query.add([element]);
    say(`Added ${element}.`);
  }

  async #longer() {
    const before = this.#list.children.length;
    this.#k += STEP;
    await this.update();
    this.#list.children[before]?.firstChild.focus();
  }

  #key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !event.target.dataset.element) return;
    const row = event.target.parentElement;
    (by > 0 ? row.nextSibling : row.previousSibling)?.firstChild.focus();
    event.preventDefault();
  }
}

/** Bars begin at 0 where all scores are positive, else a little below the lowest. */
function ruler(scores) {
  const finite = scores.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  return low >= 0 ? [0, high] : [low - 0.15 * (high - low), high];
}

function share(score, low, high) {
  return Number.isFinite(score) && high > low ? Math.max(0.03, Math.min(1, (score - low) / (high - low))) : 0.03;
}

/** Of large sets the server does not say how the members fit; what it would add it says all the same. */
const none = () => ({ fits: [], odd: null });

/** Why an element is suggested: a set it shares with the members, and the members it goes with. */
function because({ members, sets }, query) {
  const close = ({ score }) => score > 0.2 && score >= members[0].score / 2; // the closest comes first
  const order = query.map((member) => String(member).toLowerCase());
  const place = (word) => order.indexOf(word.toLowerCase());
  const words = members.filter(close).map(({ element }) => String(element)).sort((a, b) => place(a) - place(b));
  const some = words.length > 3 ? [...words.slice(0, 3), "others"] : words;
  const all = words.length > 2 && words.length === members.length;
  const goes = members.length > 1 && words.length ? `goes with ${all ? "all of them" : listed(some)}` : "";
  return [sets[0], goes].filter(Boolean).join(" · ");
}

/** 'milc' (milk?) */
const named = ({ element, suggestions }) => `'${element}'${suggestions.length ? ` (did you mean ${suggestions.join(", ")}?)` : ""}`;

const upper = (sentence) => sentence.charAt(0).toUpperCase() + sentence.slice(1);

/** The members' fits on the ruler of the column's scores, so that a full bar fits as well as the best addition. */
function ruled({ candidates, fits }) {
  const [low, high] = ruler([...candidates.map((candidate) => candidate.score), ...fits.values()]);
  return { fits: new Map([...fits].map(([member, fit]) => [member, { fit, share: share(fit, low, high) }])) };
}
