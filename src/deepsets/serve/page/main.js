// Starts the page: what the server has, which view the address asks for, and who listens to whom.

import { ask } from "./api.js";
import { Chips } from "./chips.js";
import { $, complain, el, listed, say } from "./dom.js";
import { Estimator } from "./estimator.js";
import { Column } from "./results.js";
import { Query, address, readAddress, writeAddress } from "./state.js";

async function start() {
  let server;
  try {
    server = await ask("v1/models");
  } catch (error) {
    return complain(error.message);
  }
  const expanders = server.models.filter((model) => model.kind === "expander");
  const estimators = server.models.filter((model) => model.kind !== "expander");
  expanders.sort((a, b) => (b.name === server.default) - (a.name === server.default));
  if (!server.models.length) return complain("The server has no model to show.");

  const query = new Query(readAddress().q, typeof expanders[0]?.examples[0]?.[0] === "number");
  const draw = expanders.length ? expansion(expanders, query) : null;
  const estimator = estimators.length ? new Estimator() : null;

  const route = () => {
    const asked = readAddress();
    if (location.hash.length > 1 && !asked.q && !asked.model) return; // an anchor of the page
    const model = estimators.find(({ name }) => name === asked.model?.[0]) ?? (draw ? null : estimators[0]);
    $("expand").hidden = Boolean(model);
    $("estimate").hidden = !model;
    complain();
    if (model) estimator.open(model, asked.example ? Number(asked.example[0]) - 1 : null);
    else draw(asked.q ?? [], Boolean(asked.methods));
    navigation(draw && query, estimators, model);
    if (asked.model && model?.name !== asked.model[0]) complain(`There is no estimator ${asked.model[0]} on this server.`);
  };
  addEventListener("hashchange", route);
  route();
}

function navigation(query, estimators, current) {
  const links = [...(query ? [["More like these", address({ q: query.members }), !current]] : []),
    ...estimators.map((model) => [model.name, address({ model: [model.name] }), model === current])];
  $("models").hidden = links.length < 2;
  $("models").replaceChildren(...links.map(([text, href, here]) =>
    el("a", { href, "aria-current": here && "page", onclick: (event) => here && event.preventDefault() }, text)));
}

/** The view of the expanders; gives the function that shows a query. */
function expansion(models, query) {
  const chips = new Chips(query, models[0].name);
  const alone = (kind) => models.filter((model) => model.class === kind).length === 1;
  const columns = models.map((model, place) => new Column(model, query, place, alone));
  $("columns").append(...columns.map((column) => column.root));
  const compare = $("compare").querySelector("button"); // the methods of a blend wait behind it
  const parts = models.some((model) => model.part_of);
  const shown = () => columns.filter((_, place) => apart || !models[place].part_of);
  $("columns").classList.toggle("blend", parts || models.length === 1); // the first in full width
  let apart = false;

  const draw = async () => {
    const { members } = query;
    writeAddress({ q: members, methods: apart ? ["1"] : [] });
    complain();
    chips.draw();
    if (members.length < 2) chips.judge();
    $("undo").disabled = !query.canUndo;
    $("clear").disabled = $("share").disabled = !members.length;
    $("starts").hidden = members.length > 0;
    $("columns").hidden = !members.length;
    $("compare").hidden = !members.length || !parts;
    compare.setAttribute("aria-pressed", String(apart));
    const visible = shown();
    for (const column of columns) column.root.hidden = !visible.includes(column);
    const answers = await Promise.all(visible.map(async (column, place) => {
      const answer = await column.update();
      if (place === 0 && answer) chips.judge(answer);
      return answer;
    }));
    if (answers.includes(null) || !members.length) return;
    const notes = answers.map(({ note }) => note);
    const same = new Set(notes).size === 1; // what all say is said once
    complain(same ? notes[0] : "");
    visible.forEach((column, place) => column.note(same ? "" : notes[place]));
    if (answers[0].candidates) say(told(members, answers[0]));
  };
  query.addEventListener("change", draw);
  compare.addEventListener("click", () => {
    apart = !apart;
    draw();
  });

  const undo = () => {
    const done = query.undo();
    const now = query.members.length ? `Now ${listed(query.members)}.` : "The set is empty.";
    say(done ? `Undone. ${now}` : "There is nothing to undo.");
  };
  $("undo").addEventListener("click", () => {
    undo();
    if ($("undo").disabled) $("entry").focus();
  });
  $("clear").addEventListener("click", () => {
    query.clear();
    $("entry").focus();
  });
  $("share").addEventListener("click", share);
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.value !== "";
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey || typing || $("expand").hidden) return;
    event.preventDefault();
    undo();
  });
  for (const kind of ["pointerover", "focusin", "pointerout", "focusout"]) {
    $("columns").addEventListener(kind, (event) => {
      const element = event.target.closest("[data-element]")?.dataset.element;
      for (const row of $("columns").querySelectorAll("[data-element]")) {
        row.classList.toggle("same", /over|in$/.test(kind) && row.dataset.element === element);
      }
    });
  }

  const starts = models[0].examples;
  $("starts").querySelector("div").replaceChildren(...starts.slice(0, 8).map((example) =>
    el("button", { type: "button", onclick: () => query.add(example.map(String)) }, example.join(", "))));
  let first = true;
  return (members, methods) => {
    apart = methods;
    if (first || members.join("\n") === query.members.join("\n")) draw();
    else query.replace(members);
    first = false;
  };
}

function told(members, { candidates = [], odd }) {
  const best = candidates.slice(0, 3).map(({ element }) => element);
  return `With ${listed(members)} goes ${listed(best)}.${odd ? ` The odd one may be ${odd}.` : ""}`;
}

async function share() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
    setTimeout(() => ($("share").textContent = "Copy link"), 1600);
    say("The link is copied.");
  } catch {
    complain(`Copy the address of this page: ${location.href}`); // only secure pages may write to the clipboard
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the query's
  $("main").focus();
});

start().finally(() => $("main").removeAttribute("aria-busy"));
