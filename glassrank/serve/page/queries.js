// Types of queries, and where a model helps or hurts: what `glassrank clusters` found, with median
// ranks of the first relevant document against the first stage.

import { getReport } from "./api.js";
import { allQueries, clusterHeads, clusterRow, gainOf } from "./clusters.js";
import { make, replace } from "./dom.js";

const SORTS = { gain: "most gained", loss: "most lost", size: "largest" };
const ABOUT =
  "Similar queries in groups, each with the median rank of the first relevant document, before " +
  "and after re-ranking.";
const MISSING =
  "There are no clusters yet. Make them with `glassrank clusters … --json clusters.json`, and " +
  "start the service with `--clusters clusters.json`.";

export class QueriesView {
  constructor(context) {
    this._context = context;
    this._report = null;
    this._drawn = null;
    const { address } = context;
    const options = Object.entries(SORTS).map(([value, text]) => make("option", { value }, text));
    this._sort = make("select", { id: "sort" }, ...options);
    this._sort.addEventListener("change", () => address.go({ sort: this._sort.value }));
    this._filter = make("input", {
      ...{ type: "search", id: "filter", autocomplete: "off", placeholder: "words of a query" },
    });
    this._filter.addEventListener("input", () => address.go({ filter: this._filter.value }, true));
    this._place = make("div", { class: "place" });
    this.root = make(
      "div",
      { class: "queries-view" },
      make("h1", { tabindex: "-1" }, "Types of queries"),
      make("p", { class: "lead" }, ABOUT),
      make(
        "div",
        { class: "bar-of-choices" },
        choice("choice", "Order", this._sort),
        choice("choice grow", "Filter", this._filter),
      ),
      this._place,
    );
  }

  title() {
    return "Types of queries";
  }

  async update(state) {
    this._sort.value = sortOf(state);
    if (document.activeElement !== this._filter) this._filter.value = state.filter ?? "";
    if (!this._context.info.reports.includes("clusters")) {
      replace(this._place, make("p", { class: "message" }, MISSING));
      return;
    }
    try {
      this._report ??= await getReport("clusters", (text) =>
        replace(this._place, make("p", { class: "message" }, text)),
      );
      this._draw(this._context.address.state);
    } catch (error) {
      replace(this._place, make("p", { class: "message", role: "alert" }, error.message));
    }
  }

  _draw(state) {
    const name = JSON.stringify([sortOf(state), state.filter]);
    if (name === this._drawn) return; // only what is open has changed, and that is seen already
    this._drawn = name;
    const report = this._report;
    const wanted = words(state.filter ?? "");
    const found = report.clusters
      .map((cluster, number) => ({ cluster, number, queries: [] }))
      .sort(
        (one, other) => order(sortOf(state), one.cluster) - order(sortOf(state), other.cluster),
      );
    const byNumber = new Map(found.map((one) => [one.number, one]));
    for (const query of report.queries) {
      if (matches(query.text, wanted)) byNumber.get(query.cluster).queries.push(query);
    }
    const scale = powersOfTen(report.queries);
    const open = new Set((state.cluster ?? "").split("."));
    const rows = found
      .filter(({ queries }) => queries.length > 0)
      .map(({ cluster, number, queries }) =>
        clusterRow(cluster, queries, scale, {
          open: wanted.length > 0 || open.has(String(number)),
          onToggle: (isOpen) => wanted.length || this._remember(number, isOpen),
        }),
      );
    const none = make("p", { class: "message" }, "No query has these words.");
    const list = make("div", { class: "cluster-list" }, rows.length ? rows : none);
    replace(this._place, clusterHeads(), list, allQueries(report.all, scale));
    this._context.say(`${rows.length} clusters`);
  }

  _remember(number, isOpen) {
    const { address } = this._context;
    const open = new Set((address.state.cluster ?? "").split(".").filter(Boolean));
    if (isOpen) open.add(String(number));
    else open.delete(String(number));
    address.go({ cluster: [...open].join(".") }, true);
  }
}

function choice(className, name, input) {
  return make("div", { class: className }, make("label", { for: input.id }, name), input);
}

function sortOf(state) {
  return Object.hasOwn(SORTS, state.sort ?? "") ? state.sort : "gain";
}

function order(sort, cluster) {
  if (sort === "size") return -cluster.queries;
  const gain = Math.max(-1e9, Math.min(1e9, gainOf(cluster)));
  return sort === "loss" ? gain : -gain;
}

// How far a line of ranks must reach.
function powersOfTen(queries) {
  const worst = queries.reduce(
    (most, one) => Math.max(most, one.baseline ?? 1, one.model ?? 1),
    10,
  );
  return Math.ceil(Math.log10(worst));
}

function words(text) {
  return text.toLowerCase().split(/\s+/u).filter(Boolean);
}

// Every word that was typed begins a word of the query.
function matches(text, wanted) {
  const own = words(text);
  return wanted.every((start) => own.some((word) => word.startsWith(start)));
}
