// One query by two models: both rankings, and any document explained by both.

import { explain, latest, search } from "./api.js";
import { addressOf, searchOf } from "./address.js";
import { freshId, make, replace } from "./dom.js";
import { count, milliseconds, number } from "./printing.js";
import { Sides } from "./sides.js";

const SHOWN = 10;

export class ModelsView {
  constructor(context) {
    this._context = context;
    this._names = context.info.models.map((model) => model.name);
    this._searched = "";
    this._explained = "";
    this._sides = null;
    this._ask = latest();
    this._explain = latest();
    this._back = make("a", { class: "back", "data-go": true }, "← Results");
    this._head = make("h1", { tabindex: "-1" }, "Two models");
    this._pickers = ["left", "right"].map((side) => this._picker(side));
    this._lists = [make("ol", { class: "ranking" }), make("ol", { class: "ranking" })];
    this._notes = [make("p", { class: "faint small" }), make("p", { class: "faint small" })];
    this._place = make("div", { class: "place" });
    const column = (side) =>
      make(
        "section",
        { "aria-label": side ? "Right model" : "Left model" },
        ...[this._pickers[side].root, this._notes[side], this._lists[side]],
      );
    this.root = make(
      "div",
      { class: "models-view" },
      make("p", { class: "crumbs" }, this._back),
      this._head,
      make("div", { class: "rankings" }, column(0), column(1)),
      this._place,
    );
  }

  title(state) {
    return `${state.q ?? ""}: two models`;
  }

  async update(state) {
    const { info } = this._context;
    const models = [state.left ?? this._names[0], state.right ?? this._names[1] ?? this._names[0]];
    this._pickers.forEach((picker, side) => (picker.select.value = models[side]));
    this._back.href = addressOf(searchOf(state));
    replace(this._head, state.q ?? "Two models");
    if (!state.q || this._names.length < 2) {
      const why = state.q
        ? "This service has one model; start it with two to compare them."
        : "Search for something first.";
      replace(this._place, make("p", { class: "message" }, why));
      return;
    }
    const budget_ms = state.budget ?? info.budget_ms;
    const forms = models.map((model) => ({
      ...{ query: state.q, k: SHOWN, budget_ms, model, method: state.method ?? null },
    }));
    try {
      if (JSON.stringify(forms) !== this._searched) this._searching = this._search(forms);
      await this._searching;
      // Whatever came meanwhile has been told, too, and knows better what to show.
      if (this._context.address.state === state) await this._show(state, models);
    } catch (error) {
      this._searched = this._explained = "";
      replace(this._place, make("p", { class: "message", role: "alert" }, error.message));
    }
  }

  async _search(forms) {
    this._searched = JSON.stringify(forms);
    // One after the other: at the same time, each would take time from the other.
    const responses = await this._ask(async (signal) => [
      await search(forms[0], signal),
      await search(forms[1], signal),
    ]);
    if (!responses) return;
    responses.forEach((response, side) => {
      const other = new Map(responses[1 - side].hits.map((hit) => [hit.doc_id, hit.rank]));
      const spent = milliseconds(response.timing_ms.total);
      replace(this._notes[side], `${count(response.depth)} re-ranked in ${spent}`);
      replace(this._lists[side], ...response.hits.map((hit) => this._line(hit, other)));
    });
    this._context.say("Two rankings side by side");
  }

  _line(hit, other) {
    const there = other.get(hit.doc_id);
    const gain = there === undefined ? null : there - hit.rank;
    const way = gain > 0 ? "up" : gain < 0 ? "down" : "same";
    const sign = gain === null ? "" : { up: "▲ ", down: "▼ ", same: "= " }[way];
    const told = there === undefined ? "not in the other" : `${there} in the other`;
    const { state } = this._context.address;
    return make(
      "li",
      { "data-doc": hit.doc_id },
      make("span", { class: "rank" }, String(hit.rank)),
      make(
        "a",
        { href: addressOf({ ...state, doc: hit.doc_id }), "data-go": true },
        hit.title || hit.doc_id,
      ),
      make("span", { class: `other ${way}` }, make("span", { "aria-hidden": "true" }, sign), told),
      make("span", { class: "hit-score" }, hit.reranked ? number(hit.score) : ""),
    );
  }

  async _show(state, models) {
    for (const line of this.root.querySelectorAll(".ranking li")) {
      line.classList.toggle("current", line.dataset.doc === state.doc);
    }
    if (!state.doc) {
      this._explained = "";
      replace(
        this._place,
        make("p", { class: "faint" }, "Choose a document to see it through both models."),
      );
      return;
    }
    const form = {
      query: state.q,
      doc_id: [state.doc],
      model: models,
      method: state.method ?? null,
    };
    if (JSON.stringify(form) === this._explained) {
      this._sides?.show(state);
      return;
    }
    this._explained = JSON.stringify(form);
    const comparison = await this._explain((signal) => explain(form, signal));
    if (!comparison) return;
    const heads = models.map((name) => [make("h2", {}, name)]);
    const go = (changes, quietly) => this._context.address.go(changes, quietly);
    this._sides = new Sides(comparison, { heads, names: models, go });
    replace(this._place, make("h2", { class: "doc-name" }, state.doc), this._sides.root);
    this._sides.show(this._context.address.state);
  }

  _picker(side) {
    const id = freshId("model");
    const select = make(
      "select",
      { id },
      ...this._names.map((name) => make("option", { value: name }, name)),
    );
    select.addEventListener("change", () =>
      this._context.address.go({ [side]: select.value, flip: null }),
    );
    const label = make("label", { for: id }, side === "left" ? "Left model" : "Right model");
    return { select, root: make("div", { class: "choice" }, label, select) };
  }
}
