// What adds more to the left side than to the right: signed differences, as in Figure 3 of the TK
// paper.

import { make } from "./dom.js";
import { signed } from "./printing.js";
import { maybe, signedBar } from "./tables.js";

const GROUPS = {
  score: "",
  part: "Parts",
  signal: "Signals",
  term: "Query words",
};

export function differenceTable(comparison, names) {
  const groups = Object.keys(GROUPS).map((group) => ({
    title: GROUPS[group],
    rows: comparison.differences.filter((row) => row.group === group),
  }));
  const apart = make("input", { type: "checkbox" });
  const table = make(
    "table",
    { class: "differences" },
    make("caption", {}, "Left minus right"),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...["", names[0], names[1], "difference", ""].map((name) =>
          make("th", { scope: "col" }, name),
        ),
      ),
    ),
    ...groups.filter((group) => group.rows.length).map(body),
  );
  apart.addEventListener("change", () => table.classList.toggle("apart", apart.checked));
  const hasPaths = comparison.differences.some((row) => row.path);
  return make(
    "div",
    { class: "difference-box" },
    make(
      "div",
      {
        class: "scroll",
        tabindex: "0",
        role: "region",
        "aria-label": "Differences, left minus right",
      },
      table,
    ),
    hasPaths ? make("label", { class: "small" }, apart, " each path apart") : null,
  );
}

function body(group) {
  const most = Math.max(...group.rows.map((row) => Math.abs(row.difference)), Number.MIN_VALUE);
  const head = make(
    "tr",
    { class: "group" },
    make("th", { scope: "rowgroup", colspan: 5 }, group.title),
  );
  return make("tbody", {}, group.title ? head : null, ...group.rows.map((row) => line(row, most)));
}

function line(row, most) {
  const text = signed(row.difference);
  const way = text.startsWith("+") ? "up" : text.startsWith("-") ? "down" : "";
  const sign = { up: " ▲", down: " ▼" }[way] ?? "";
  return make(
    "tr",
    { class: row.path ? "path" : null, "data-group": row.group },
    make("th", { scope: "row" }, row.path ? `${row.name}, ${row.path}` : row.name),
    make("td", {}, maybe(row.left)),
    make("td", {}, maybe(row.right)),
    make("td", { class: `difference ${way}` }, text, make("span", { "aria-hidden": "true" }, sign)),
    make("td", {}, signedBar(row.difference, most)),
  );
}
