// A text whose words can be looked at one by one: coloured, with a letter or number as second cue.
//
// It is one stop for the Tab key; arrow keys move between words, so that two hundred of them do not
// stand between a reader and the next button.

import { byTerm } from "./against.js";
import { make, put } from "./dom.js";
import { letter, look } from "./palette.js";
import { characters, number, safe, signed } from "./printing.js";

const LIGHTEST = 0.14;
const DEEPEST = 0.42;
const LONG = 24;

// `text` is a Text of an explanation; `marks` has a Mark for each word. `onLook(place, element)` is
// called when a word is pointed at or focused, with null when it is left; `onPick` when chosen.
export class WordText {
  constructor(explanation, side, { onLook, onPick }) {
    this._explanation = explanation;
    this._side = side;
    this._onLook = onLook;
    this._onPick = onPick;
    this._text = side === "query" ? explanation.query : explanation.doc;
    this._marks = side === "query" ? queryMarks(explanation) : explanation.marks;
    this._most = Math.max(...this._marks.map((mark) => mark.share ?? 0), Number.MIN_VALUE);
    this._words = new Map(); // place -> element
    const whose = side === "query" ? "query" : "document";
    this.root = make("div", {
      class: `text ${side}-text`,
      role: "listbox",
      dir: "auto",
      "aria-label": `Words of the ${whose}. Arrow keys move, Enter changes a word.`,
    });
    this._fill();
    this._listen();
  }

  _fill() {
    const cut = characters(this._text.text);
    const begins = this._text.passage?.[0] ?? 0;
    let at = 0;
    this._text.words.forEach((word, place) => {
      if (word.start === null) return;
      const gap = flowing(cut(at, word.start), word.text);
      const unread = at < begins && begins <= word.start; // what stands before a passage
      put(this.root, unread ? make("span", { class: "cut" }, gap) : gap);
      const element = make(
        "span",
        {
          class: shape(word),
          role: "option",
          tabindex: this._words.size === 0 ? 0 : -1,
          "aria-selected": "false",
          "aria-label": describe(this._explanation, this._marks[place], word),
          "data-place": place,
        },
        cut(word.start, word.stop),
      );
      this._words.set(place, element);
      put(this.root, element);
      at = word.stop;
    });
    const rest = cut(at);
    const unread = this._text.cut || this._text.passage;
    put(this.root, unread ? make("span", { class: "cut" }, rest) : rest);
  }

  // Colours, lines and letters, as `looks` has them switched on.
  paint(looks) {
    for (const [place, element] of this._words) {
      const mark = this._marks[place];
      // A query word has the colour of its number; what is context has none.
      const own = looks.terms[place] && this._text.words[place].is_content ? place : null;
      const colour = this._side === "query" ? own : looks.colour(mark, this._text.words[place]);
      element.querySelector("sup")?.remove();
      element.className = shape(this._text.words[place]);
      if (colour === null) continue;
      const byTerm = looks.byTerm || this._side === "query";
      element.classList.add("on", ...look(colour).split(" "));
      element.style.setProperty("--deep", String(this._depth(mark, place)));
      const cue = byTerm ? String(colour + 1) : letter(colour);
      put(element, make("sup", { "aria-hidden": "true" }, cue));
    }
  }

  _depth(mark, place) {
    if (mark.signal === null) return LIGHTEST + (DEEPEST - LIGHTEST) / 2;
    const close = this._explanation.signals[mark.signal].strength[place] ?? 0;
    const adds = mark.share > 0 ? mark.share / this._most : 0;
    return LIGHTEST + (DEEPEST - LIGHTEST) * Math.min(1, Math.max(close, adds));
  }

  // As if the word were not there, or another one in its place.
  change(place, by) {
    for (const element of this.root.querySelectorAll(".instead")) element.remove();
    for (const [own, element] of this._words) {
      element.classList.toggle("removed", own === place);
      if (own === place && by) element.after(make("ins", { class: "instead" }, ` ${by}`));
    }
  }

  // From elsewhere, as when a cell of the matrix is pointed at.
  point(place) {
    for (const [own, element] of this._words) element.classList.toggle("pointed", own === place);
  }

  focus(place) {
    this._words.get(place)?.focus();
  }

  _listen() {
    const placeOf = (event) => {
      const element = event.target.closest?.(".w");
      return element ? Number(element.dataset.place) : null;
    };
    const lookAt = (event) => {
      const place = placeOf(event);
      if (place !== null) this._onLook(this._side, place, this._words.get(place));
    };
    const leave = () => this._onLook(this._side, null, null);
    const pick = (event) => {
      const place = placeOf(event);
      if (place !== null) this._onPick(this._side, place, this._words.get(place));
    };
    this.root.addEventListener("pointerover", lookAt);
    this.root.addEventListener("pointerleave", leave);
    this.root.addEventListener("focusin", (event) => {
      this._rove(placeOf(event));
      lookAt(event);
    });
    this.root.addEventListener("focusout", leave);
    this.root.addEventListener("click", pick);
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pick(event);
        return;
      }
      const target = this._next(placeOf(event), event.key);
      if (target === null) return;
      event.preventDefault();
      this._words.get(target).focus();
    });
  }

  _next(place, key) {
    const places = [...this._words.keys()];
    const at = places.indexOf(place);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (key === "Home") return places[0] ?? null;
    if (key === "End") return places.at(-1) ?? null;
    return key in steps ? (places[at + steps[key]] ?? null) : null;
  }

  _rove(place) {
    for (const [own, element] of this._words) {
      element.tabIndex = own === place ? 0 : -1;
      element.setAttribute("aria-selected", String(own === place));
    }
  }
}

// A word and its cue stay on one line, unless the word alone is longer than some lines.
function shape(word) {
  return word.text.length > LONG ? "w long" : "w";
}

// Lines that were broken for a terminal flow on; paragraphs, lists and indented lines stay.
function flowing(gap, next) {
  return /^[ \t]*\n$/.test(gap) && /^[\p{L}\p{N}]/u.test(next) ? " " : gap;
}

// A query word is what it does for this document and not for the others, and its own colour.
function queryMarks(explanation) {
  const values = byTerm(explanation.against?.parts);
  return explanation.query.words.map((_, place) => ({
    term: place,
    signal: null,
    similarity: null,
    share: null,
    against: values.get(place) ?? null,
  }));
}

// The sentence that is read out, and the same that hovers.
export function describe(explanation, mark, word) {
  return safe([word.text, ...facts(explanation, mark, word)].join(", "));
}

export function facts(explanation, mark, word) {
  const found = [];
  if (mark.similarity !== null && mark.term !== null) {
    const near = explanation.query.words[mark.term].text;
    found.push(`similarity ${number(mark.similarity)} to “${near}”`);
  }
  if (mark.signal !== null) found.push(explanation.signals[mark.signal].name);
  if (mark.share !== null) found.push(`adds ${signed(mark.share)}`);
  if (typeof mark.against === "number") found.push(`${signed(mark.against)} against the others`);
  if (!word.known) found.push("not in the vocabulary");
  return found;
}

export function markOf(explanation, side, place) {
  return side === "query" ? queryMarks(explanation)[place] : explanation.marks[place];
}
