// One document's score, explained: what puts it above the others, the marked text, and what is
// switched on; one click further the matrix, kernels and raw values.

import { againstOthers, againstTree } from "./against.js";
import { changeOf, changeText, ChangeStrip } from "./changes.js";
import { make, replace } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { Looks, switchedOn } from "./looks.js";
import { MarkedTexts } from "./marked.js";
import { number } from "./printing.js";
import { sumTree } from "./sums.js";
import { Switches } from "./switches.js";
import { signalTable, termTable, wordTable } from "./tables.js";

export function scoreLine(explanation) {
  const kind = explanation.is_additive ? "additive parts" : "approximate parts";
  return make(
    "p",
    { class: "score-line" },
    "score ",
    make("strong", { class: "score" }, number(explanation.score)),
    make("span", { class: "faint" }, `, ${kind} · ${explanation.model}`),
  );
}

export function noteList(explanation) {
  if (explanation.notes.length === 0) return null;
  return make("ul", { class: "notes" }, ...explanation.notes.map((note) => make("li", {}, note)));
}

export class ExplanationPanel {
  // `form` is what it was asked with; `go(changes)` changes the address.
  constructor(explanation, form, go) {
    this._explanation = explanation;
    this._texts = new MarkedTexts(explanation, (side, place, by) =>
      go({ change: changeText(side, place, by) }),
    );
    // Switches say nothing new to whoever looks through the page's history.
    this._switches = new Switches(explanation, (changes) => go(changes, true));
    this._strip = new ChangeStrip(form, explanation, go);
    this._subtotal = make("p", { class: "subtotal" });
    this._switches.raw.append(this._subtotal);
    this._change = undefined;
    this.root = make("div", { class: "explanation" }, ...this._pieces());
  }

  show(state) {
    const looks = new Looks(this._explanation, state);
    this._switches.show(state, looks);
    this._texts.paint(looks);
    replace(
      this._subtotal,
      "what is switched on adds up to ",
      make("b", {}, number(switchedOn(this._explanation.parts, looks))),
      ` of ${number(this._explanation.score)}`,
    );
    if (state.change === this._change) return;
    this._change = state.change;
    const change = changeOf(state.change);
    this._texts.change(change);
    this._strip.show(change);
  }

  _pieces() {
    const explanation = this._explanation;
    return [
      scoreLine(explanation),
      againstOthers(explanation),
      make(
        "div",
        { class: "columns" },
        make(
          "section",
          { class: "reading", "aria-label": "Query and document" },
          this._strip.root,
          this._texts.query.root,
          this._texts.doc.root,
          make(
            "p",
            { class: "faint small" },
            "Point at a word to see how it relates to the query. Choose it to remove or replace it.",
          ),
          noteList(explanation),
        ),
        make("aside", { "aria-label": "What is coloured" }, this._switches.root),
      ),
      // What nobody opens is not made; without others to stand against, it is all there is.
      folded("Kernels and raw values", () => this._raw(), !explanation.against),
      folded("Every word of the document", () => [wordTable(explanation)]),
      make("p", { class: "faint small" }, "Numbers are rounded; they add up before rounding."),
    ];
  }

  _raw() {
    const explanation = this._explanation;
    const maps = explanation.matrices.map(
      (matrix) =>
        new HeatMap(matrix, explanation, (side, place) => this._texts.point(side, place)).root,
    );
    return [
      make("section", { class: "maps", "aria-label": "Match matrix" }, ...maps),
      make(
        "div",
        { class: "numbers" },
        againstTree(explanation),
        make("section", {}, make("h4", {}, "The score as a sum"), sumTree(explanation.parts)),
        make("section", {}, termTable(explanation)),
        make("section", { class: "wide" }, signalTable(explanation)),
      ),
    ];
  }
}

// Made when it is first opened.
export function folded(title, content, open = false) {
  const details = make("details", { class: "folded" }, make("summary", {}, title));
  const fill = () => details.append(...content());
  details.addEventListener("toggle", fill, { once: true });
  details.open = open;
  return details;
}
