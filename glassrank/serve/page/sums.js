// The score as a tree of parts: what stands indented below a line adds up to it.

import { make } from "./dom.js";
import { number } from "./printing.js";

const OPEN_LEVELS = 1;

export function sumTree(part) {
  return make("ul", { class: "tree" }, branch(part, 0));
}

function branch(part, depth) {
  const line = [
    make("span", { class: "name" }, part.name),
    make("span", { class: "leader", "aria-hidden": "true" }),
    make("b", {}, number(part.value)),
  ];
  if (part.children.length === 0) {
    return make("li", { class: "line", "data-kind": part.kind }, ...line);
  }
  const details = make(
    "details",
    { open: depth < OPEN_LEVELS },
    make("summary", { class: "line" }, ...line),
  );
  const fill = () =>
    details.append(make("ul", {}, ...part.children.map((child) => branch(child, depth + 1))));
  // A sum may have hundreds of parts: those that nobody opens are not made.
  if (depth < OPEN_LEVELS) fill();
  else details.addEventListener("toggle", fill, { once: true });
  return make("li", { "data-kind": part.kind }, details);
}
