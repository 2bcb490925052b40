// Clusters of queries as rows: a median rank before and after, and the queries themselves inside.

import { addressOf } from "./address.js";
import { make } from "./dom.js";
import { count } from "./printing.js";
import { rankLine } from "./rankline.js";

const MOST = 100; // queries of a cluster that are listed

export function clusterHeads() {
  const heads = ["", "queries", "first stage ○   ● re-ranked", "rank", "gain"];
  return make(
    "div",
    { class: "cluster-line heads", "aria-hidden": "true" },
    ...heads.map((head) => make("span", {}, head)),
  );
}

export function allQueries(all, scale) {
  return make("div", { class: "cluster all-queries" }, clusterLine(all, "All queries", scale));
}

// `scale` is for `rankLine`; `onToggle(open)` is told when somebody opens or closes it.
export function clusterRow(cluster, queries, scale, { open, onToggle }) {
  const details = make(
    "details",
    { class: "cluster", open },
    make("summary", {}, clusterLine(cluster, cluster.name, scale)),
  );
  if (open) details.append(queryList(queries, scale));
  else {
    const fill = () => details.append(queryList(queries, scale));
    details.addEventListener("toggle", fill, { once: true });
  }
  // A row that is made open toggles, too; only what differs from the start is news.
  details.addEventListener("toggle", () => {
    if (details.isConnected && details.open !== open) onToggle(details.open);
    open = details.open;
  });
  return details;
}

function clusterLine(cluster, name, scale) {
  const helped = `${count(cluster.better)} better, ${count(cluster.worse)} worse`;
  return make(
    "span",
    { class: "cluster-line" },
    make("span", { class: "cluster-name" }, name, make("span", { class: "helped" }, helped)),
    make("span", { class: "size" }, count(cluster.queries)),
    ...ranksOf(cluster, scale),
  );
}

function queryList(queries, scale) {
  const lines = queries
    .slice(0, MOST)
    .map((query) =>
      make(
        "li",
        { class: "cluster-line" },
        make("a", { href: addressOf({ q: query.text }), "data-go": true }, query.text),
        ...ranksOf(query, scale),
      ),
    );
  const rest = queries.length - MOST;
  if (rest > 0) {
    lines.push(make("li", { class: "faint" }, `and ${count(rest)} more; the filter finds them`));
  }
  return make("ul", { class: "cluster-queries" }, ...lines);
}

function ranksOf(one, scale) {
  const gain = gainOf(one);
  const way = gain > 0 ? "up" : gain < 0 ? "down" : "same";
  const sign = { up: "▲", down: "▼", same: "=" }[way];
  const after = make("b", {}, String(one.model ?? "none"));
  return [
    rankLine(one.baseline, one.model, scale),
    make("span", { class: "from-to" }, `${one.baseline ?? "none"} → `, after),
    make(
      "span",
      { class: `gain ${way}` },
      sign,
      Number.isFinite(gain) && gain ? ` ${Math.abs(gain)}` : "",
    ),
  ];
}

// A rank is null where nothing relevant was found; to come from there is the largest gain.
export function gainOf(one) {
  if (one.gain !== null) return one.gain;
  return one.baseline === null ? Infinity : -Infinity;
}
