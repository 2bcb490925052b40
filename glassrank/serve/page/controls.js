// The search box, and beside it what a search is done with: model, first stage, budget.

import { freshId, make, replace } from "./dom.js";
import { Slider } from "./slider.js";

const LEAST_MS = 5; // in less, not even the query is encoded
const MOST_MS = 2000;

export class Controls {
  // `onSearch(query)`, `onBudget(ms)` while the slider moves, `onChoice({model} or {method})`.
  constructor(info, { onSearch, onBudget, onChoice }) {
    this._info = info;
    this.box = make("input", {
      ...{ type: "search", name: "q", id: "query", autocomplete: "off", spellcheck: "false" },
      ...{
        placeholder: "Ask a question",
        enterkeyhint: "search",
        maxlength: info.limits.query_characters,
      },
    });
    this._model = this._select("Model", (model) => onChoice({ model, method: null }));
    this._method = this._select("First stage", (method) => onChoice({ method }));
    const most = Math.max(info.budget_ms, Math.min(MOST_MS, info.limits.budget_ms));
    this._budget = new Slider("Budget", [LEAST_MS, most], onBudget);
    const names = [...info.models.map((model) => model.name), "none"];
    replace(
      this._model.select,
      ...names.map((name) =>
        make("option", { value: name }, name === "none" ? "none: first stage alone" : name),
      ),
    );
    this.root = make(
      "form",
      {
        class: "controls",
        role: "search",
        on: {
          submit: (event) => {
            event.preventDefault();
            onSearch(this.box.value.trim());
          },
        },
      },
      make(
        "div",
        { class: "ask" },
        make("label", { for: "query", class: "unseen" }, "Query"),
        this.box,
        make("button", { type: "submit", class: "primary" }, "Search"),
      ),
      make("div", { class: "choices" }, this._model.root, this._method.root, this._budget.root),
    );
  }

  show(state) {
    // What somebody is typing stays, until the address names another query.
    if (state.q !== this._q) this.box.value = state.q ?? "";
    this._q = state.q;
    const model = modelOf(this._info, state);
    this._model.select.value = model?.name ?? "none";
    const method = methodOf(this._info, state);
    const methods = [...new Set([...this._info.methods, method])];
    replace(this._method.select, ...methods.map((name) => make("option", { value: name }, name)));
    this._method.select.value = method;
    this._budget.show(state.budget ?? this._info.budget_ms);
  }

  _select(label, onChange) {
    const id = freshId("choice");
    const select = make("select", { id });
    select.addEventListener("change", () => onChange(select.value));
    return {
      select,
      root: make("div", { class: "choice" }, make("label", { for: id }, label), select),
    };
  }
}

// What a state means where it does not say: the service's first model, the model's first stage.
export function modelOf(info, state) {
  const name = state.model ?? info.models[0]?.name;
  return info.models.find((model) => model.name === name) ?? null;
}

export function methodOf(info, state) {
  return state.method ?? modelOf(info, state)?.first_stage ?? info.methods[0];
}
