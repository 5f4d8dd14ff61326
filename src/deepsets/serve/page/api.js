// Questions to the server; what it refuses becomes an error with its sentence.

import { $ } from "./dom.js";

const KEPT = "deepsets-token";

export class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence.charAt(0).toUpperCase() + sentence.slice(1));
    this.status = status;
  }

  /** The question was wrong, so that another one may be answered. */
  get ofQuestion() {
    return [400, 404, 413, 422].includes(this.status);
  }
}

/** GET where there is no body, else POST; paths are relative, so that the page works below a prefix. */
export async function ask(path, body = null, signal = undefined) {
  let answer = await send(path, body, signal);
  while (answer.status === 401) {
    await unlock();
    answer = await send(path, body, signal);
  }
  const told = await answer.json().catch(() => null);
  if (!answer.ok || told === null) {
    throw new Refusal(told?.error ?? `The server answered ${answer.status} without a reason.`, answer.status);
  }
  return told;
}

async function send(path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(KEPT);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is it still running?", 0);
  }
}

let asking = null; // many questions may be refused at once; people are asked once

function unlock() {
  asking ??= new Promise((resolve) => {
    const dialog = $("locked");
    if (sessionStorage.getItem(KEPT)) $("locked-why").textContent = "That token was not the right one.";
    $("token").value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEPT, $("token").value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
