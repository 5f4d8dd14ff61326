// CSV text to the members of a set: rows of numbers, what to call the columns, what to call the members.

/** Fields of a line may be quoted; the separator is the one of , ; tab that the first line has most of. */
export function parse(text) {
  const first = text.slice(0, text.search(/[\r\n]|$/));
  const separator = [",", ";", "\t"].reduce((best, one) => (first.split(one).length > first.split(best).length ? one : best));
  const rows = [[]];
  const field = new RegExp(`(?:"((?:[^"]|"")*)"|([^${separator}\\r\\n]*))(${separator}|\\r\\n|\\r|\\n|$)`, "y");
  for (let found; field.lastIndex < text.length && (found = field.exec(text)); ) {
    rows.at(-1).push(found[1]?.replaceAll('""', '"') ?? found[2].trim());
    if (found[3] !== separator) rows.push([]);
  }
  return rows.filter((row) => row.some((cell) => cell !== ""));
}

/**
 * {rows, columns, labels}. With the names of the features in the header the columns are found by name, in any order;
 * else those of numbers are taken as they come. A column of words beside them names the members.
 */
export function members(text, { features = [], width = 0, tokens = false } = {}) {
  let table = parse(text.replace(/^\ufeff/, ""));
  if (!table.length) throw new Error("The file is empty: wanted a row for each member.");
  const hasHeader = !tokens && !table[0].some(isNumber); // of words there is none
  const named = hasHeader ? table[0] : table[0].map((_, place) => `column ${place + 1}`);
  if (hasHeader) table = table.slice(1);
  if (!table.length) throw new Error("The file has a header and no rows: wanted a row for each member.");
  const short = table.findIndex((row) => row.length !== named.length);
  if (short >= 0) throw new Error(`Row ${short + 1} has ${table[short].length} cells; the first line has ${named.length}.`);
  if (tokens) return { rows: table.map((row) => row[0]), columns: [], labels: table.map((row) => row[0]) };

  const numeric = named.map((_, place) => table.every((row) => isNumber(row[place])));
  const byName = features.length > 0 && features.every((name) => named.includes(name));
  const taken = byName ? features.map((name) => named.indexOf(name)) : [...named.keys()].filter((place) => numeric[place]);
  const wrong = taken.find((place) => !numeric[place]);
  if (wrong !== undefined) {
    const row = table.findIndex((cells) => !isNumber(cells[wrong]));
    throw new Error(`Row ${row + 1} of ${named[wrong]} is “${table[row][wrong]}”; wanted a number.`);
  }
  if (!taken.length || (width && taken.length !== width)) {
    const wanted = features.length ? `: ${features.join(", ")}` : "";
    throw new Error(`The file has ${taken.length} columns of numbers; the model wants ${width || "some"}${wanted}.`);
  }
  const word = numeric.indexOf(false);
  return {
    rows: table.map((row) => taken.map((place) => Number(row[place]))),
    columns: taken.map((place) => named[place]),
    labels: word < 0 ? null : table.map((row) => row[word]),
  };
}

const isNumber = (cell) => cell !== "" && cell !== undefined && Number.isFinite(Number(cell));
