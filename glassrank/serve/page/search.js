// The search view: results of one query, any of them explained in place.

import { addressOf } from "./address.js";
import { explain, forget, latest, search, sendFeedback } from "./api.js";
import { Chosen } from "./chosen.js";
import { Controls, modelOf } from "./controls.js";
import { make, replace } from "./dom.js";
import { ExplanationPanel } from "./explanation.js";
import { count, milliseconds, number } from "./printing.js";
import { ResultList } from "./results.js";
import { TimeBar } from "./timebar.js";
import { welcome } from "./welcome.js";

const SHOWN = 10;
const PAUSE_MS = 120; // a slider that moves on within this time is not asked about

export class SearchView {
  constructor(context) {
    this._context = context;
    this._info = context.info;
    this._asked = "";
    this._response = null;
    this._panel = null; // {name, place, shown}
    this._noted = ""; // the last feedback
    this._arrived = false;
    this._ask = latest();
    this._explain = latest();
    const { address } = context;
    this.controls = new Controls(this._info, {
      onSearch: (q) => {
        this._asked = ""; // Enter asks again, even for the same
        const isOther = address.go({ q, doc: null, change: null, flip: null });
        if (!isOther) this.update(address.state);
      },
      onBudget: (ms) => this._soon(() => address.go({ budget: ms }, true)),
      onChoice: (changes) => address.go({ ...changes, change: null, flip: null }),
    });
    this._time = new TimeBar();
    this.list = new ResultList({
      onOpen: (docId) => this.toggle(docId),
      onChoose: (docId) => this._chosen.flip(docId),
      onFeedback: (docId, action) => this._feedback(docId, action),
    });
    this._chosen = new Chosen(
      context,
      () => this._response,
      (ids) => this.list.choose(ids),
    );
    this._message = make("div", { class: "message-slot" });
    this._elsewhere = make("section", { class: "panel elsewhere", hidden: true });
    this._more = make(
      "button",
      { type: "button", class: "more-results", hidden: true },
      "More results",
    );
    this._more.addEventListener("click", () =>
      address.go({ k: (address.state.k ?? SHOWN) + SHOWN }),
    );
    this._twoModels = make(
      "a",
      { class: "two-models small", "data-go": true },
      "Compare two models",
    );
    this._twoModels.hidden = this._info.models.length < 2;
    this._found = make(
      "div",
      { class: "found" },
      ...[this._time.root, this._twoModels, this._elsewhere],
      ...[this.list.root, this._more, this._chosen.root],
    );
    this.root = make(
      "div",
      { class: "search-view" },
      make("h1", { class: "unseen" }, "Search"),
      ...[this.controls.root, this._message, this._found],
    );
  }

  title(state) {
    return state.q ?? "Search";
  }

  async update(state) {
    this.controls.show(state);
    this._found.hidden = !state.q;
    if (!state.q) {
      replace(this._message, welcome(this._info));
      this._asked = "";
      this._ask(() => null); // what was asked before is no longer of interest
      this.list.clear();
      this.controls.box.focus();
      return;
    }
    const form = this._form(state);
    if (JSON.stringify(form) !== this._asked) this._searching = this._search(form, state);
    await this._searching;
    // Whatever came meanwhile has been told, too, and knows better what to show.
    if (this._context.address.state === state) this._showPanel(state);
  }

  // Opens the explanation of a result, or closes it.
  toggle(docId) {
    const { address } = this._context;
    const same = address.state.doc === docId;
    address.go({ doc: same ? null : docId, change: null, flip: null });
  }

  chooseCurrent() {
    if (this.list.current !== null) this._chosen.flip(this.list.current);
  }

  compareChosen() {
    this._chosen.compare();
  }

  _form(state) {
    return {
      query: state.q,
      k: Math.min(state.k ?? SHOWN, this._info.limits.k),
      budget_ms: state.budget ?? this._info.budget_ms,
      model: state.model ?? null,
      method: state.method ?? null,
    };
  }

  // A title that is opened and closed is one click.
  _feedback(docId, action) {
    const form = { query_id: this._response?.query_id, doc_id: docId, action };
    const name = JSON.stringify(form);
    if (!form.query_id || this._noted === name) return;
    this._noted = name;
    sendFeedback(form);
  }

  _soon(work) {
    clearTimeout(this._timer);
    this._timer = setTimeout(work, PAUSE_MS);
  }

  async _search(form, state) {
    this._asked = JSON.stringify(form);
    if (!this._response) this._time.clear();
    this._found.classList.add("busy");
    try {
      const response = await this._ask((signal) => search(form, signal));
      if (response === null) return; // another search has begun meanwhile
      if (response.generation !== this._response?.generation) forget();
      this._response = response;
      this._context.listed = { form, response }; // what a comparison is of
      this._tell(response, form, state);
    } catch (error) {
      this._asked = "";
      replace(this._message, make("p", { class: "message", role: "alert" }, error.message));
    }
    this._found.classList.remove("busy");
  }

  _tell(response, form, state) {
    this._time.show(response, form.budget_ms);
    const both = { view: "models", doc: null, change: null, flip: null, model: null };
    this._twoModels.href = addressOf({ ...state, ...both });
    this.list.show(response, state);
    this._chosen.show();
    this._more.hidden = response.hits.length < form.k || form.k >= this._info.limits.k;
    const none = response.hits.length === 0;
    const sentence = "Nothing found: no document has a word of this query.";
    replace(this._message, none ? make("p", { class: "message" }, sentence) : null);
    const deep = response.model === "none" ? "" : `, ${count(response.depth)} re-ranked`;
    const spent = milliseconds(response.timing_ms.total);
    this._context.say(none ? sentence : `${response.hits.length} results${deep}, in ${spent}`);
  }

  // The explanation stands in its result's row, or above the list if it is of another document.
  async _showPanel(state) {
    const docId = state.doc ?? null;
    const hit = this._response?.hits.find((one) => one.doc_id === docId);
    const form = docId === null ? null : this._explainForm(state, docId, hit);
    const name = JSON.stringify(form);
    const row = hit ? this.list.row(docId) : null;
    for (const one of this._response?.hits ?? [])
      this.list.row(one.doc_id)?.open(one.doc_id === docId);
    this._elsewhere.hidden = docId === null || Boolean(row);
    const place = row?.panel ?? this._elsewhere;
    if (form === null) {
      this._panel = null;
      this._arrived = true;
      return;
    }
    if (this._panel?.name === name && this._panel.place === place) {
      this._panel.shown?.show(state);
      return;
    }
    this._panel = { name, place, shown: null };
    replace(place, make("p", { class: "faint loading" }, "Explaining …"));
    try {
      const explanation = await this._explain((signal) => explain(form, signal));
      if (explanation === null || this._panel?.name !== name) return;
      const go = (changes, quietly) => this._context.address.go(changes, quietly);
      const shown = new ExplanationPanel(explanation, form, go);
      const note = roundedNote(hit, explanation);
      shown.root.querySelector(".score-line").append(...(note ? [note] : []));
      replace(place, row ? null : make("h2", {}, docId), shown.root);
      this._panel.shown = shown;
      shown.show(this._context.address.state);
      // A link that names a document leads there; after that, the reader scrolls.
      if (!this._arrived) (row?.root ?? place).scrollIntoView();
      this._arrived = true;
      this._context.say(`Explanation of ${docId}: score ${number(explanation.score)}`);
    } catch (error) {
      this._panel = null;
      replace(place, make("p", { class: "message", role: "alert" }, error.message));
    }
  }

  _explainForm(state, docId, hit) {
    const model = modelOf(this._info, state) ?? this._info.models[0];
    return {
      query: state.q,
      doc_id: [docId],
      model: hit?.ranked_by ? [hit.ranked_by] : model ? [model.name] : [],
      method: state.method ?? null,
      ...(hit ? { first_score: [hit.first_score], regularization: [hit.regularization] } : {}),
    };
  }
}

// Ranking rounds vectors for speed, so a score in the list may differ in its last digits. One that
// differs by more keeps the hit below those of a later model, or was computed in less time.
const ROUNDING = 0.02;

function roundedNote(hit, explanation) {
  if (!hit?.reranked || number(hit.score) === number(explanation.score)) return null;
  const listed = number(hit.score);
  const why =
    Math.abs(hit.score - explanation.score) < ROUNDING
      ? "vectors are rounded for speed"
      : "it keeps the hit below those of a later model, or less of the text was read in time";
  return make("span", { class: "faint small" }, ` · the list has ${listed}: ${why}`);
}
