// Query and document of one explanation, with a card beside the word that is looked at.

import { card } from "./card.js";
import { facts, markOf, WordText } from "./words.js";

export class MarkedTexts {
  // `onChange(side, place, by)` where words can be changed; null where they cannot.
  constructor(explanation, onChange) {
    this._explanation = explanation;
    this._onChange = onChange;
    const listeners = {
      onLook: (side, place, element) => this._look(side, place, element),
      onPick: (side, place, element) => this._pick(side, place, element),
    };
    this.query = new WordText(explanation, "query", listeners);
    this.doc = new WordText(explanation, "document", listeners);
  }

  paint(looks) {
    this.query.paint(looks);
    this.doc.paint(looks);
  }

  point(side, place) {
    (side === "query" ? this.query : this.doc).point(place);
  }

  change(change) {
    this.query.change(change?.side === "query" ? change.word : null, change?.by);
    this.doc.change(change?.side === "document" ? change.word : null, change?.by);
  }

  _look(side, place, element) {
    if (place === null) card().hint(null);
    else card().hint(element, ...this._about(side, place));
  }

  _pick(side, place, element) {
    if (!this._onChange) return;
    const [title, told] = this._about(side, place);
    card().open(element, title, told, (by) => this._onChange(side, place, by));
  }

  _about(side, place) {
    const { query, doc } = this._explanation;
    const word = (side === "query" ? query : doc).words[place];
    return [word.text, facts(this._explanation, markOf(this._explanation, side, place), word)];
  }
}
