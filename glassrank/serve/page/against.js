// This document against the others, or against one: a sentence, and the differences that it is made
// from, all bars of a table on one scale.

import { make } from "./dom.js";
import { signed } from "./printing.js";
import { sumTree } from "./sums.js";
import { table } from "./tables.js";

const ARROWS = { up: "▲", down: "▼", "": "" };
const CONTEXT =
  "[CLS] and [SEP], function words and punctuation: it belongs to no content word.";

// Nothing where there are no others.
export function againstOthers(explanation) {
  const { against } = explanation;
  if (!against) return null;
  return decisive(against.sentence, against.heading, against.parts, "Against the others");
}

// Why one of two documents is above the other; nothing for two models.
export function againstEachOther(comparison) {
  if (!comparison.parts) return null;
  return decisive(comparison.sentence, "Left minus right", comparison.parts, "Against each other");
}

function decisive(sentence, heading, root, label) {
  const parts = [...root.children, root];
  const low = Math.min(0, ...parts.map((part) => part.value));
  const high = Math.max(0, ...parts.map((part) => part.value));
  const rows = parts.map((part) => [name(part), differing(part.value), scaled(part, low, high)]);
  return make(
    "section",
    { class: "against", "aria-label": label },
    make("p", { class: "sentence" }, sentence),
    table(heading, ["", "difference", ""], rows, "differing"),
  );
}

// The same differences by path and kernel.
export function againstTree(explanation) {
  if (!explanation.against) return null;
  const { heading, parts } = explanation.against;
  return make("section", {}, make("h4", {}, heading), sumTree(parts));
}

// The difference of each query word, those of the context among them.
export function byTerm(part, found = new Map()) {
  if (part?.kind === "term") found.set(part.number, part.value);
  else for (const child of part?.children ?? []) byTerm(child, found);
  return found;
}

function name(part) {
  const isContext = part.kind === "words";
  return make("span", { class: isContext && "faint", title: isContext && CONTEXT }, part.name);
}

function differing(value) {
  const text = signed(value);
  const way = text.startsWith("+") ? "up" : text.startsWith("-") ? "down" : "";
  return make("span", { class: way }, `${text} ${ARROWS[way]}`);
}

// From zero to the value, between the lowest and the highest of the table.
function scaled(part, low, high) {
  const whole = high - low || 1;
  const kind = part.kind === "words" ? "context" : part.value < 0 ? "less" : "more";
  const bar = make("span", { class: `scaled ${kind}`, "aria-hidden": "true" });
  bar.style.setProperty("--from", `${(100 * (Math.min(part.value, 0) - low)) / whole}%`);
  bar.style.setProperty("--wide", `${(100 * Math.abs(part.value)) / whole}%`);
  bar.style.setProperty("--zero", `${(100 * -low) / whole}%`);
  return bar;
}
