// Where each millisecond was spent, against the budget, and how deep that went.

import { make, replace } from "./dom.js";
import { budget as budgetText, count, milliseconds } from "./printing.js";

const NAMES = {
  queue: "waiting",
  first_stage: "first stage",
  query: "encoding",
  scoring: "scoring",
  sorting: "sorting",
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

  show(answer, budgetMs) {
    const stages = answer.stages.map(named);
    const total = answer.timing_ms.total;
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
      ...depthLine(answer),
      over ? "over" : "within",
      ` ${budgetText(budgetMs)}`,
      shared(answer, budgetMs),
    );
  }
}

// The second model of a cascade has hops named query_2 and scoring_2.
function named(stage) {
  const [, kind, number] = stage.name.match(/^(query|scoring)_(\d+)$/) ?? [null, stage.name];
  const label = NAMES[kind] ?? kind;
  return { ...stage, kind, label: number ? `${label} ${number}` : label };
}

function depthLine(answer) {
  const spent = make("b", {}, milliseconds(answer.timing_ms.total));
  if (answer.model === "none") return ["First stage alone: ", spent, ", "];
  return [
    "Re-ranked ",
    make("b", {}, count(answer.depth)),
    ` of ${count(answer.found)} candidates`,
    ...furtherDepths(answer),
    " in ",
    spent,
    ", ",
  ];
}

// How many of them the later models of a cascade came to: it changes with the time that there was,
// and with it the scores.
function furtherDepths(answer) {
  return answer.stages
    .filter((stage) => /^scoring_\d+$/.test(stage.name))
    .map((stage) => `, the best ${count(stage.documents ?? 0)} once more`);
}

// A search that others had to wait for, or that had to wait, has less than its budget.
const MUCH_LESS = 0.8;

function shared(answer, budgetMs) {
  if (!answer.cut_short || answer.granted_ms >= MUCH_LESS * budgetMs) return "";
  const why = answer.shared ? "others were searching" : "this machine was busy with other work";
  return `; ${why}, so it was granted ${milliseconds(answer.granted_ms)}`;
}

function piece(name, share) {
  const element = make("span", { class: name });
  element.style.width = `${100 * share}%`;
  return element;
}
