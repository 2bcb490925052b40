// Quality against time, as `glassrank budget` has measured it: what each millisecond buys.

import { getInfo, getReport } from "./api.js";
import { Chart, lineLook, marker } from "./chart.js";
import { make, replace, svg } from "./dom.js";
import { budget as budgetText, count, milliseconds, number, signed } from "./printing.js";
import { Slider } from "./slider.js";
import { table } from "./tables.js";

const MISSING =
  "There are no curves yet. Measure them with `glassrank budget … --json curves.json`, and " +
  "start the service with `--curves curves.json`.";
const ROUNDING = 1e-9; // the time of a depth must allow that depth again, though both are rounded

export class BudgetView {
  constructor(context) {
    this._context = context;
    this._report = null;
    this._drawn = "";
    this._place = make("div", { class: "place" });
    this._online = make("div", { class: "online", "aria-live": "polite" });
    this._about = make(
      "p",
      { class: "lead" },
      "The quality of the results for each time limit of re-ranking.",
    );
    this.root = make(
      "div",
      { class: "budget-view" },
      make("h1", { tabindex: "-1" }, "Quality against time"),
      this._about,
      this._online,
      this._place,
    );
  }

  title() {
    return "Quality against time";
  }

  async update() {
    if (this._context.info.interleaving) this._compareOnline();
    if (!this._context.info.reports.includes("budget")) {
      replace(this._place, make("p", { class: "message" }, MISSING));
      return;
    }
    try {
      this._report ??= await getReport("budget", (text) =>
        replace(this._place, make("p", { class: "message" }, text)),
      );
    } catch (error) {
      replace(this._place, make("p", { class: "message", role: "alert" }, error.message));
      return;
    }
    const now = this._context.address.state;
    const measures = Object.keys(this._report.first_stage);
    const measure = measures.includes(now.measure) ? now.measure : measures[0];
    if (this._drawn !== measure) this._draw(measure, measures);
    this._show(now.ms ?? this._middle());
  }

  // Two models by their users' clicks, as of now.
  async _compareOnline() {
    const state = (await getInfo()).interleaving;
    const second = state.models[1];
    const [low, high] = state.interval.map((end) => `${(100 * end).toFixed(1)}%`);
    const rows = state.models.map((model, place) => [model, count(state.wins[place])]);
    const verdict = state.decided
      ? `Decided: ${state.decided} wins.`
      : `Not decided yet: of the searches that tell the two apart, ${second} wins between ${low} ` +
        `and ${high}, so either may be the better one.`;
    const searches = `${count(state.searches)} search${state.searches === 1 ? "" : "es"}`;
    replace(
      this._online,
      table(`Compared online in ${searches}`, ["model", "wins"], rows),
      make("p", {}, verdict, " However often you look, this stays valid."),
    );
  }

  _draw(measure, measures) {
    const report = this._report;
    this._drawn = measure;
    this._measure = measure;
    const lines = report.models.map((model) => ({
      label: model.label,
      points: model.measures[measure].at_depth.map((value, depth) => ({
        ms: timeOf(model, depth),
        value,
      })),
      best: model.measures[measure].best.depth,
    }));
    const mostMs = report.ms.at(-1);
    this._chart = new Chart({
      lines,
      firstStage: report.first_stage[measure],
      mostMs,
      label: measure,
      width: this._place.clientWidth,
    });
    this._chart.root.addEventListener("pointermove", (event) =>
      this._show(this._chart.timeAt(event), false),
    );
    this._chart.root.addEventListener("pointerleave", () =>
      this._show(this._context.address.state.ms ?? this._middle()),
    );
    const go = this._context.address;
    this._slider = new Slider("Time", [1, Math.max(1, mostMs)], (ms) => go.go({ ms }, true));
    this._readout = make("div", { class: "readouts", "aria-live": "polite" });
    replace(
      this._place,
      this._choice(measure, measures),
      make("figure", { class: "curves" }, this._chart.root, legend(lines)),
      this._slider.root,
      this._readout,
      bestTable(report, measure),
      make("p", { class: "faint small" }, about(report)),
    );
  }

  _choice(measure, measures) {
    const choices = measures.map((name) => {
      const input = make("input", {
        type: "radio",
        name: "measure",
        value: name,
        checked: name === measure,
      });
      input.addEventListener("change", () => this._context.address.go({ measure: name }));
      return make("label", {}, input, ` ${name}`);
    });
    return make("fieldset", { class: "measures" }, make("legend", {}, "Measure"), ...choices);
  }

  _middle() {
    return this._context.info.budget_ms;
  }

  // What each model reaches in that time.
  _show(ms, moveSlider = true) {
    this._chart.guide(ms);
    if (moveSlider) this._slider.show(ms);
    const first = this._report.first_stage[this._measure];
    const rows = this._report.models.map((model) => {
      const values = model.measures[this._measure].at_depth;
      const depth = Math.min(depthIn(model, ms), values.length - 1);
      return [model.label, count(depth), number(values[depth]), signed(values[depth] - first)];
    });
    rows.unshift(["first stage alone", "0", number(first), ""]);
    const title = `${this._measure} in ${moveSlider ? budgetText(ms) : milliseconds(ms)}`;
    replace(this._readout, table(title, ["", "re-ranked", "value", "gain"], rows));
  }
}

function timeOf(model, depth) {
  return depth > 0 ? model.query_ms + depth / model.docs_per_ms : 0;
}

function depthIn(model, ms) {
  return Math.floor(Math.max(0, ms - model.query_ms) * model.docs_per_ms + ROUNDING);
}

function legend(lines) {
  const keys = lines.map((line, number) => {
    const look = lineLook(number);
    const sample = svg(
      "svg",
      { class: "sample", viewBox: "0 0 44 12", "aria-hidden": "true" },
      svg("line", {
        class: `curve ${look.class}`,
        "stroke-dasharray": look.dashes,
        x1: 0,
        x2: 44,
        y1: 6,
        y2: 6,
      }),
      marker(look, 22, 6),
    );
    return make("li", {}, sample, line.label);
  });
  const flat = svg(
    "svg",
    { class: "sample", viewBox: "0 0 44 12", "aria-hidden": "true" },
    svg("line", { class: "first", x1: 0, x2: 44, y1: 6, y2: 6 }),
  );
  return make(
    "figcaption",
    {},
    make("ul", { class: "keys" }, make("li", {}, flat, "first stage alone"), ...keys),
  );
}

function bestTable(report, measure) {
  const first = report.first_stage[measure];
  const rows = report.models.map((model) => {
    const best = model.measures[measure].best;
    return [
      model.label,
      ...[number(best.value), signed(best.value - first), count(best.depth), milliseconds(best.ms)],
      model.docs_per_ms.toPrecision(3),
    ];
  });
  const chosen = report.chosen_on === "dev" ? "on dev queries" : "on these queries themselves";
  return table(
    `At the depth that is best ${chosen}`,
    ["", measure, "gain", "depth", "time", "docs/ms"],
    rows,
  );
}

function about(report) {
  const { queries, candidates, machine } = report;
  const threads = `${count(machine.threads)} thread${machine.threads === 1 ? "" : "s"}`;
  return (
    `${count(queries)} judged queries, up to ${count(candidates)} candidates; ` +
    `timed on ${machine.device}, ${threads}, without the first stage. A marker is where a ` +
    "model is best, with the number of documents that it re-ranks; beyond it the line is dotted."
  );
}
