// A comparison, drawn: two texts with what tells them apart between them.

import { againstEachOther, againstOthers } from "./against.js";
import { differenceTable } from "./differences.js";
import { make } from "./dom.js";
import { folded, noteList, scoreLine } from "./explanation.js";
import { HeatMap } from "./heatmap.js";
import { Looks } from "./looks.js";
import { MarkedTexts } from "./marked.js";
import { sumTree } from "./sums.js";
import { Switches } from "./switches.js";
import { signalTable } from "./tables.js";

export class Sides {
  // `heads` are two lists of nodes; `names` two short ones for the table.
  constructor(comparison, { heads, names, go }) {
    this._explanations = [comparison.left, comparison.right];
    this._texts = this._explanations.map((one) => new MarkedTexts(one, null));
    // Two models may look for different signals: the switches are then the left one's.
    this._switches = new Switches(comparison.left, (changes) => go(changes, true));
    const [left, right] = [0, 1].map((side) => this._article(side, heads[side]));
    this.root = make(
      "div",
      { class: "sides" },
      make(
        "section",
        { class: "shared", "aria-label": "Query" },
        this._texts[0].query.root,
        againstEachOther(comparison),
      ),
      left,
      right,
      make(
        "section",
        { class: "between shared", "aria-label": "Differences" },
        // Of two documents the bars above say it; what is left is by path and kernel.
        comparison.parts
          ? folded("Differences by path and kernel", () => [differenceTable(comparison, names)])
          : differenceTable(comparison, names),
      ),
      make(
        "details",
        { class: "shared what", open: true },
        make("summary", {}, "What is coloured"),
        this._switches.root,
      ),
    );
  }

  show(state) {
    this._switches.show(state, new Looks(this._explanations[0], state));
    this._texts.forEach((texts, side) => texts.paint(new Looks(this._explanations[side], state)));
  }

  _article(side, head) {
    const explanation = this._explanations[side];
    const texts = this._texts[side];
    const maps = explanation.matrices.map(
      (matrix) =>
        new HeatMap(matrix, explanation, (whose, place) => texts.point(whose, place)).root,
    );
    return make(
      "article",
      { class: `side ${side ? "right" : "left"}` },
      ...head,
      scoreLine(explanation),
      againstOthers(explanation),
      texts.doc.root,
      noteList(explanation),
      folded("The score as a sum", () => [sumTree(explanation.parts)]),
      folded("Match matrix", () => maps),
      folded("Signals, raw values", () => [signalTable(explanation)]),
    );
  }
}
