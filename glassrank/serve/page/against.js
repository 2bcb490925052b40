// This document against the others: a sentence, and the differences that it is made from.

import { bar, make } from "./dom.js";
import { signed } from "./printing.js";
import { sumTree } from "./sums.js";
import { table } from "./tables.js";

const ARROWS = { up: "▲", down: "▼", "": "" };

// Nothing where there are no others.
export function againstOthers(explanation) {
  const { against } = explanation;
  if (!against) return null;
  const parts = [...against.parts.children, against.parts];
  const most = Math.max(...parts.map((part) => Math.abs(part.value)), Number.MIN_VALUE);
  const rows = parts.map((part) => [part.name, differing(part.value), difference(part, most)]);
  return make(
    "section",
    { class: "against", "aria-label": "Against the others" },
    make("p", { class: "sentence" }, against.sentence),
    table(against.heading, ["", "difference", ""], rows, "differing"),
  );
}

// The same differences by path and kernel.
export function againstTree(explanation) {
  if (!explanation.against) return null;
  const { heading, parts } = explanation.against;
  return make("section", {}, make("h4", {}, heading), sumTree(parts));
}

// The difference of each query word, folded ones among them.
export function byTerm(part, found = new Map()) {
  if (part?.kind === "term") found.set(part.number, part.value);
  else for (const child of part?.children ?? []) byTerm(child, found);
  return found;
}

function differing(value) {
  const text = signed(value);
  const way = text.startsWith("+") ? "up" : text.startsWith("-") ? "down" : "";
  return make("span", { class: way }, `${text} ${ARROWS[way]}`);
}

function difference(part, most) {
  return bar(Math.abs(part.value) / most, part.value < 0 ? "less" : "more");
}
