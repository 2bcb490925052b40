// The numbers of an explanation as tables, in the same form as in the HTML file.

import { bar, make } from "./dom.js";
import { letter } from "./palette.js";
import { number, signed, WORDS_ADD } from "./printing.js";

export function table(caption, heads, rows, className = "") {
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    make(
      "tr",
      {},
      ...row.map((cell, place) =>
        place === 0 ? make("th", { scope: "row" }, cell) : make("td", {}, cell),
      ),
    ),
  );
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make(
      "table",
      { class: className },
      make("caption", {}, caption),
      make("thead", {}, head),
      make("tbody", {}, ...body),
    ),
  );
}

export function maybe(value) {
  return value === null || value === undefined ? "" : number(value);
}

// Paths that all signals share; members of an ensemble have their own, and so none.
function signalPaths(explanation) {
  const lists = explanation.signals.map((signal) => signal.paths.map((share) => share.path));
  const first = JSON.stringify(lists[0] ?? []);
  return lists.every((own) => JSON.stringify(own) === first) ? (lists[0] ?? []) : [];
}

export function signalTable(explanation) {
  const paths = signalPaths(explanation);
  const heads = ["", "signal", "center", "width"];
  for (const path of paths) heads.push(`${path} weight`, `${path} signal`, path);
  const most = largest(explanation.signals);
  const rows = explanation.signals.map((signal, place) => {
    const cells = [letter(place), signal.name, maybe(signal.center), maybe(signal.width)];
    for (const share of paths.length ? signal.paths : []) {
      cells.push(maybe(share.weight), maybe(share.signal), number(share.value));
    }
    return [...cells, number(signal.value), signedBar(signal.value, most)];
  });
  return table("Signals, raw values", [...heads, "total", ""], rows, "signals");
}

export function termTable(explanation) {
  const paths = Object.keys(explanation.terms[0]?.paths ?? {});
  const most = largest(explanation.terms);
  const rows = explanation.terms.map((term) => [
    String(term.word + 1),
    explanation.query.words[term.word].text,
    ...Object.values(term.paths).map(number),
    number(term.value),
    signedBar(term.value, most),
  ]);
  return table(
    "Query words, raw values",
    ["", "query word", ...paths, "total", ""],
    rows,
    "terms",
  );
}

export function wordTable(explanation) {
  const rows = explanation.doc.words.map((word, place) => {
    const mark = explanation.marks[place];
    const near = mark.term === null ? "" : explanation.query.words[mark.term].text;
    const signal = mark.signal === null ? "" : explanation.signals[mark.signal].name;
    return [word.text, near, maybe(mark.similarity), signal, signed(mark.share)];
  });
  for (const part of explanation.rest) rows.push([part.name, "", "", "", signed(part.value)]);
  const heads = ["word", "closest query word", "similarity", "signal", "adds"];
  return table(WORDS_ADD, heads, rows, "words");
}

function largest(list) {
  return Math.max(...list.map((one) => Math.abs(one.value)), Number.MIN_VALUE);
}

// To the right of the middle if it adds, to the left if it takes away.
export function signedBar(value, most) {
  return bar(Math.abs(value) / most, value < 0 ? "less" : "more");
}
