// Where each millisecond was spent, against the budget, and how deep that went.

import { make, replace } from "./dom.js";
import { budget as budgetText, count, milliseconds } from "./printing.js";

const NAMES = {
  queue: "waiting",
  first_stage: "first stage",
  query: "encoding",
  scoring: "scoring",
  sorting: "sorting",
  interleaving: "the other model",
  snippets: "snippets",
};

export class TimeBar {
  constructor() {
    this._track = make("div", { class: "track", "aria-hidden": "true" });
    this._depth = make("p", { class: "depth" });
    this._legend = make("ul", { class: "stages" });
    this.root = make(
      "section",
      { class: "time", "aria-label": "Time" },
      this._depth,
      this._track,
      this._legend,
    );
  }

  clear() {
    replace(this._depth, "\u00a0"); // keeps its height, so that nothing below moves
    replace(this._track);
    replace(this._legend, make("li", {}, "\u00a0"));
  }

  show(response, budgetMs) {
    const stages = response.stages.map(named);
    const total = response.timing_ms.total;
    const whole = Math.max(total, budgetMs);
    const pieces = stages.map((stage) => piece(`stage ${stage.kind}`, stage.ms / whole));
    const limit = make("i", { class: "limit" });
    limit.style.left = `${(100 * budgetMs) / whole}%`;
    replace(this._track, ...pieces, limit);
    replace(
      this._legend,
      ...stages.map((stage) =>
        make(
          "li",
          { class: `stage-name ${stage.kind}` },
          `${stage.label} `,
          make("b", {}, milliseconds(stage.ms)),
        ),
      ),
    );
    const over = total > budgetMs;
    replace(
      this._depth,
      ...depthLine(response),
      over ? "over" : "within",
      ` ${budgetText(budgetMs)}`,
      shared(response, budgetMs),
    );
  }
}

// The second model of a cascade has hops named query_2 and scoring_2.
function named(stage) {
  const [, kind, number] = stage.name.match(/^(query|scoring)_(\d+)$/) ?? [null, stage.name];
  const label = NAMES[kind] ?? kind;
  return { ...stage, kind, label: number ? `${label} ${number}` : label };
}

function depthLine(response) {
  const spent = make("b", {}, milliseconds(response.timing_ms.total));
  if (response.model === "none") return ["First stage alone: ", spent, ", "];
  return [
    "Re-ranked ",
    make("b", {}, count(response.depth)),
    ` of ${count(response.found)} candidates`,
    ...furtherDepths(response),
    " in ",
    spent,
    response.cut_short ? ` (budget used up at depth ${count(response.depth)}), ` : ", ",
  ];
}

// How many of them the later models of a cascade re-ranked, which depends on the time. The first to
// score is not always the first of the cascade, which may have nothing to do.
function furtherDepths(response) {
  return response.stages
    .filter((stage) => /^scoring(_\d+)?$/.test(stage.name))
    .slice(1)
    .map((stage) => `, the best ${count(stage.documents ?? 0)} again`);
}

// Under load a search gets less than its budget.
const MUCH_LESS = 0.8;

function shared(response, budgetMs) {
  if (!response.cut_short || response.granted_ms >= MUCH_LESS * budgetMs) return "";
  const why = response.shared ? "others are searching" : "this machine is busy with other work";
  return `; ${why}, so it got ${milliseconds(response.granted_ms)}`;
}

function piece(name, share) {
  const element = make("span", { class: name });
  element.style.width = `${100 * share}%`;
  return element;
}
