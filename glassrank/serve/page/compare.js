// Two documents of one query, side by side.

import { explain, latest, search } from "./api.js";
import { addressOf, searchOf } from "./address.js";
import { modelOf } from "./controls.js";
import { make, replace } from "./dom.js";
import { ranks } from "./row.js";
import { Sides } from "./sides.js";

const AMONG = 100; // results in which the documents' ranks are looked up

export class CompareView {
  constructor(context) {
    this._context = context;
    this._ask = latest();
    this._name = "";
    this._sides = null;
    this._place = make("div", { class: "place" });
    this._back = make("a", { class: "back", "data-go": true }, "← Results");
    this._head = make("h1", { tabindex: "-1", class: "unseen" }, "Side by side");
    this._swap = make("button", { type: "button", class: "quiet" }, "Swap sides");
    this._swap.addEventListener("click", () => {
      const { left, right } = context.address.state;
      context.address.go({ left: right, right: left });
    });
    this.root = make(
      "div",
      { class: "compare-view" },
      make("p", { class: "crumbs" }, this._back, this._swap),
      this._head,
      this._place,
    );
  }

  title(state) {
    return `${state.q}: ${state.left} and ${state.right}`;
  }

  async update(state) {
    this._back.href = addressOf(searchOf(state));
    replace(this._head, `Side by side: ${state.q ?? ""}`);
    const { q, left, right } = state;
    if (!q || !left || !right) {
      replace(
        this._place,
        make("p", { class: "message" }, "Choose two results of a search to compare them."),
      );
      return;
    }
    const model = modelOf(this._context.info, state);
    const asked = { query: q, model: model?.name ?? null, method: state.method ?? null };
    const name = JSON.stringify([asked, left, right, state.budget]);
    if (name === this._name) {
      this._sides?.show(state);
      return;
    }
    this._name = name;
    this._sides = null;
    replace(this._place, make("p", { class: "faint loading" }, "Comparing …"));
    try {
      const response = await this._ask(async (signal) => {
        const found = await this._ranks(asked, state, signal);
        const form = explainForm(asked, [left, right], found);
        return { comparison: await explain(form, signal), found };
      });
      if (response) this._draw(response.comparison, response.found);
    } catch (error) {
      this._name = "";
      replace(this._place, make("p", { class: "message", role: "alert" }, error.message));
    }
  }

  // Where both stand in the list that they were chosen from, or, behind a link, in one that is asked
  // for now, if they are near its top. Without it, they are still compared.
  async _ranks(asked, state, signal) {
    const { info, listed } = this._context;
    const budget_ms = state.budget ?? info.budget_ms;
    const ids = [state.left, state.right];
    if (listed && isSame(listed.form, asked, budget_ms)) {
      const found = byId(listed.response);
      if (ids.every((id) => found.has(id))) return found;
    }
    const k = Math.min(AMONG, info.limits.k);
    try {
      return byId(await search({ ...asked, k, budget_ms }, signal));
    } catch {
      return new Map();
    }
  }

  _draw(comparison, found) {
    const heads = [comparison.left, comparison.right].map(({ doc_id }) => {
      const hit = found.get(doc_id);
      return [
        make("h2", {}, hit?.title || doc_id),
        make(
          "p",
          { class: "side-ranks" },
          ...(hit?.reranked ? ranks(hit) : [make("span", { class: "faint" }, doc_id)]),
        ),
      ];
    });
    const go = (changes, quietly) => this._context.address.go(changes, quietly);
    this._sides = new Sides(comparison, { heads, names: ["left", "right"], go });
    replace(this._place, this._sides.root);
    this._sides.show(this._context.address.state);
    this._context.say("Two documents side by side");
  }
}

// Each by the model that ranked it in the list, so that its score is the same here.
function explainForm(asked, ids, found) {
  const hits = ids.map((id) => found.get(id));
  const models = hits.map((hit) => hit?.ranked_by ?? asked.model).filter(Boolean);
  const scores = hits.map((hit) => hit?.first_score).filter((score) => typeof score === "number");
  const added = hits.map((hit) => hit?.regularization).filter((one) => typeof one === "number");
  return {
    query: asked.query,
    doc_id: ids,
    model: new Set(models).size > 1 ? models : models.slice(0, 1),
    method: asked.method,
    ...(scores.length === ids.length ? { first_score: scores } : {}),
    ...(added.length === ids.length ? { regularization: added } : {}),
  };
}

function byId(response) {
  return new Map(response.hits.map((hit) => [hit.doc_id, hit]));
}

function isSame(form, asked, budget) {
  return (
    form.query === asked.query &&
    (form.method ?? null) === asked.method &&
    [null, asked.model].includes(form.model ?? null) &&
    form.budget_ms === budget
  );
}
