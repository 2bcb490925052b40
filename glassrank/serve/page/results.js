// The list of results, whose rows glide to their new places when it is ranked anew.

import { CALM, Row } from "./row.js";
import { make, replace } from "./dom.js";

const GLIDE_MS = 260;

export class ResultList {
  // `onOpen(docId)` explains or closes a result; `onChoose(docId)` takes it for a comparison.
  // `onFeedback(docId, action)` notes a click or a rating.
  constructor({ onOpen, onChoose, onFeedback }) {
    this._rows = new Map(); // document id -> Row
    this._handlers = { onOpen, onChoose, onFeedback };
    this.root = make("ol", { class: "results", "aria-label": "Results" });
  }

  // Rows of documents that stay are kept and glide to their new places, with what is open in them.
  show(response, state) {
    const before = this._places();
    const focused = document.activeElement;
    const rows = new Map();
    for (const hit of response.hits) {
      rows.set(hit.doc_id, this._rows.get(hit.doc_id) ?? new Row(this._handlers));
      rows.get(hit.doc_id).show(hit, response, state);
    }
    this._rows = rows;
    replace(this.root, ...[...rows.values()].map((row) => row.root));
    const last = response.hits.findLast((hit) => hit.reranked);
    if (last && last !== response.hits.at(-1)) {
      rows.get(last.doc_id).root.classList.add("last-reranked");
    }
    if (focused !== document.activeElement && this.root.contains(focused)) focused.focus();
    this._glide(before);
  }

  clear() {
    this._rows = new Map();
    replace(this.root);
  }

  row(docId) {
    return this._rows.get(docId);
  }

  // The result that the focus is in.
  get current() {
    for (const [docId, row] of this._rows) {
      if (row.root.contains(document.activeElement)) return docId;
    }
    return null;
  }

  focusNext(step) {
    const ids = [...this._rows.keys()];
    if (ids.length === 0) return;
    const at = ids.indexOf(this.current);
    const target = at < 0 ? (step > 0 ? 0 : ids.length - 1) : at + step;
    this._rows.get(ids[Math.max(0, Math.min(ids.length - 1, target))]).focus();
  }

  choose(docIds) {
    for (const [docId, row] of this._rows) row.chosen(docIds.includes(docId));
  }

  _places() {
    return new Map([...this._rows].map(([docId, row]) => [docId, row.root.offsetTop]));
  }

  _glide(before) {
    if (CALM.matches) return;
    for (const [docId, row] of this._rows) {
      const moved = (before.get(docId) ?? row.root.offsetTop) - row.root.offsetTop;
      if (!moved) continue;
      const from = { transform: `translateY(${moved}px)` };
      row.root.animate([from, { transform: "none" }], { duration: GLIDE_MS, easing: "ease-out" });
    }
  }
}
