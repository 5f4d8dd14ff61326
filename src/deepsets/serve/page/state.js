// The query: members in order, what they were before, and the address that says the same.

export class Query extends EventTarget {
  #past = [];

  /** numbers: the elements of the vocabulary are integers; here they are words, as in the address. */
  constructor(members = [], numbers = false) {
    super();
    this.members = [...new Set(members)];
    this.numbers = numbers;
  }

  /** Members as the server spells them. */
  spelt(members) {
    return this.numbers ? members.map((member) => (/^-?\d+$/.test(member) ? Number(member) : member)) : members;
  }

  add(elements) {
    const fresh = [...new Set(elements)].filter((element) => !this.members.includes(element));
    if (fresh.length) this.#become([...this.members, ...fresh]);
    return fresh;
  }

  remove(element) {
    this.#become(this.members.filter((member) => member !== element));
  }

  clear() {
    if (this.members.length) this.#become([]);
  }

  /** From the address: another query, which can be undone as well. */
  replace(members) {
    const wanted = [...new Set(members)];
    if (wanted.join("\n") !== this.members.join("\n")) this.#become(wanted);
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  undo() {
    if (!this.canUndo) return false;
    this.members = this.#past.pop();
    this.dispatchEvent(new Event("change"));
    return true;
  }

  #become(members) {
    this.#past.push(this.members);
    this.members = members;
    this.dispatchEvent(new Event("change"));
  }
}

/** #q=lion,snow%20leopard&model=cats&example=2 -> {q: ["lion", "snow leopard"], model: ["cats"], example: ["2"]} */
export function readAddress(hash = location.hash) {
  const found = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, value = ""] = part.split("=");
    if (name) found[name] = value.split(",").filter(Boolean).map(decode);
  }
  return found;
}

export function address(parts) {
  const told = Object.entries(parts).filter(([, values]) => values?.length);
  return "#" + told.map(([name, values]) => `${name}=${values.map(encodeURIComponent).join(",")}`).join("&");
}

/** The address without a new entry in the history of the browser: undo is the page's own. */
export function writeAddress(parts) {
  history.replaceState(null, "", address(parts));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone %: somebody typed the address by hand
  }
}
