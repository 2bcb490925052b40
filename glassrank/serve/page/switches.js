// What is coloured, and by what: a choice and two rows of switches, which are the legend as well.

import { freshId, make } from "./dom.js";
import { flipped } from "./looks.js";
import { letter, look } from "./palette.js";
import { number } from "./printing.js";

// `go(changes)` changes the address; whoever shows the text is told from there.
export class Switches {
  constructor(explanation, go) {
    this._explanation = explanation;
    this._go = go;
    this._state = {};
    const name = freshId("by");
    this._byTerm = this._radio(name, "term", "query word");
    const areKernels = explanation.signals.every((signal) => signal.center !== null);
    this._bySignal = this._radio(name, "", areKernels ? "kernel" : "signal");
    this._signals = explanation.signals.map((signal, place) =>
      this._switch(`s${place}`, place, signal.name, letter(place), signal.value),
    );
    const values = new Map(explanation.terms.map((term) => [term.word, term.value]));
    this._terms = explanation.query.words.map((word, place) =>
      this._switch(`t${place}`, place, word.text, String(place + 1), values.get(place)),
    );
    this._row = {
      signals: fieldset(areKernels ? "Kernels" : "Signals", this._signals),
      terms: fieldset("Query words", this._terms),
    };
    this.root = make(
      "div",
      { class: "switches" },
      make(
        "fieldset",
        { class: "by" },
        make("legend", {}, "Colour words by"),
        label(this._bySignal),
        label(this._byTerm),
      ),
      this._row.terms,
      this._row.signals,
    );
  }

  show(state, looks) {
    this._state = state;
    this._byTerm.checked = looks.byTerm;
    this._bySignal.checked = !looks.byTerm;
    this._signals.forEach(
      (box, place) => (box.querySelector("input").checked = looks.signals[place]),
    );
    this._terms.forEach((box, place) => (box.querySelector("input").checked = looks.terms[place]));
    this.root.classList.toggle("by-term", looks.byTerm);
  }

  _radio(name, value, text) {
    const input = make("input", { type: "radio", name, value });
    input.addEventListener("change", () => this._go({ by: value }));
    label(input, text);
    return input;
  }

  _switch(code, place, name, cue, value) {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => this._go(flipped(this._state, code)));
    return make(
      "label",
      { class: `chip ${look(place)}` },
      input,
      make("span", { class: "name" }, name),
      make("sup", {}, cue),
      value === undefined ? null : make("span", { class: "value" }, number(value)),
    );
  }
}

function label(input, text) {
  return input.parentElement ?? make("label", {}, input, ` ${text}`);
}

function fieldset(legend, switches) {
  return make(
    "fieldset",
    { class: "chips", hidden: switches.length === 0 },
    make("legend", {}, legend),
    ...switches,
  );
}
