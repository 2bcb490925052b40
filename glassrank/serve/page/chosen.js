// Results that were chosen for a comparison: two documents, or the same search by two models.

import { make, replace } from "./dom.js";

export class Chosen {
  // `getResponse()` gives the results that are shown; `onChange(ids)` is told what is chosen.
  constructor(context, getResponse, onChange) {
    this._context = context;
    this._answerNow = getResponse;
    this._onChange = onChange;
    this._ids = [];
    this.root = make("div", { class: "chosen", hidden: true });
  }

  flip(docId) {
    const without = this._ids.filter((id) => id !== docId);
    // Of three, the one that was chosen first is dropped.
    this._ids = without.length < this._ids.length ? without : [...without, docId].slice(-2);
    this.show();
  }

  show() {
    this._onChange(this._ids);
    this.root.hidden = this._ids.length === 0;
    replace(
      this.root,
      make("span", {}, this._ids.map((id) => this._title(id)).join("  and  ")),
      this._ids.length === 2
        ? make(
            "button",
            { type: "button", class: "primary", on: { click: () => this.compare() } },
            "Compare side by side",
          )
        : make("span", { class: "faint" }, "choose one more to compare"),
      make(
        "button",
        { type: "button", class: "quiet", on: { click: () => this._clear() } },
        "Clear",
      ),
    );
  }

  compare() {
    if (this._ids.length < 2) return;
    // The higher one to the left, where "left minus right" says what puts it there.
    const rank = (id) => this._answerNow()?.hits.find((hit) => hit.doc_id === id)?.rank ?? Infinity;
    const [left, right] = [...this._ids].sort((one, other) => rank(one) - rank(other));
    this._context.address.go({ view: "compare", left, right, doc: null, change: null, flip: null });
  }

  _clear() {
    this._ids = [];
    this.show();
  }

  _title(docId) {
    const hit = this._answerNow()?.hits.find((one) => one.doc_id === docId);
    return hit?.title || docId;
  }
}
