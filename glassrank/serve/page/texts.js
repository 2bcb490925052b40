// Two texts that somebody has at hand, side by side under a query: nothing needs to be indexed.

import { explain, latest } from "./api.js";
import { modelOf } from "./controls.js";
import { freshId, make, replace } from "./dom.js";
import { ExplanationPanel } from "./explanation.js";
import { Sides } from "./sides.js";

export class TextsView {
  constructor(context) {
    this._context = context;
    this._name = "";
    this._shown = null;
    this._ask = latest();
    this._query = make("input", { type: "text", id: freshId("texts"), autocomplete: "off" });
    this._texts = [0, 1].map(() =>
      make("textarea", { id: freshId("texts"), rows: 5, spellcheck: "false" }),
    );
    this._place = make("div", { class: "place" });
    const submit = (event) => {
      event.preventDefault();
      const [a, b] = this._texts.map((text) => text.value);
      context.address.go({ q: this._query.value.trim(), a, b, firsts: null, flip: null });
    };
    this.root = make(
      "div",
      { class: "texts-view" },
      make("h1", { tabindex: "-1" }, "Your texts"),
      make(
        "p",
        { class: "lead" },
        "Why would one text be ranked above another? Paste one or two, and a query.",
      ),
      make(
        "form",
        { class: "own", on: { submit } },
        field("Query", this._query),
        make(
          "div",
          { class: "pair" },
          field("Left text", this._texts[0]),
          field("Right text", this._texts[1]),
        ),
        make("button", { type: "submit", class: "primary" }, "Explain"),
      ),
      this._place,
    );
  }

  title(state) {
    return state.q ? `${state.q}: your texts` : "Your texts";
  }

  async update(state) {
    this._query.value = state.q ?? "";
    this._texts[0].value = state.a ?? "";
    this._texts[1].value = state.b ?? "";
    const texts = [state.a, state.b].filter(Boolean);
    if (!state.q || texts.length === 0) {
      this._name = "";
      replace(this._place);
      return;
    }
    const model = modelOf(this._context.info, state);
    const firsts = state.firsts?.split(",").map(Number) ?? [];
    const form = {
      query: state.q,
      text: texts,
      model: model ? [model.name] : [],
      ...(firsts.length === texts.length && firsts.every(Number.isFinite)
        ? { first_score: firsts }
        : {}),
    };
    const name = JSON.stringify(form);
    if (name === this._name) {
      this._shown?.show(state);
      return;
    }
    this._name = name;
    replace(this._place, make("p", { class: "faint loading" }, "Explaining …"));
    try {
      const response = await this._ask((signal) => explain(form, signal));
      if (response) this._draw(response, form);
    } catch (error) {
      this._name = "";
      replace(this._place, make("p", { class: "message", role: "alert" }, error.message));
    }
  }

  _draw(response, form) {
    const go = (changes, quietly) => this._context.address.go(changes, quietly);
    const heads = ["Left text", "Right text"].map((title) => [make("h2", {}, title)]);
    this._shown = response.left
      ? new Sides(response, { heads, names: ["left", "right"], go })
      : new ExplanationPanel(response, form, go);
    replace(this._place, this._shown.root);
    this._shown.show(this._context.address.state);
    this._context.say("Explained");
  }
}

function field(name, input) {
  return make("div", { class: "field" }, make("label", { for: input.id }, name), input);
}
