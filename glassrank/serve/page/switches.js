// What is coloured, and by what: a choice and two rows of switches, which are the legend as well.

import { byTerm } from "./against.js";
import { freshId, make } from "./dom.js";
import { flipped } from "./looks.js";
import { letter, look } from "./palette.js";
import { number, signed } from "./printing.js";

// `go(changes)` changes the address; whoever shows the text is told from there.
export class Switches {
  constructor(explanation, go) {
    this._explanation = explanation;
    this._go = go;
    this._state = {};
    const name = freshId("by");
    this._byTerm = this._radio(name, "term", "query word");
    const areKernels = explanation.signals.every((signal) => signal.center !== null);
    this._bySignal = this._radio(name, "signal", areKernels ? "kernel" : "signal");
    this._signals = explanation.signals.map((signal, place) =>
      this._switch(`s${place}`, place, signal.name, letter(place), number(signal.value)),
    );
    // Against the others where there are any: raw values are one click further, with the kernels.
    const { against } = explanation;
    const raw = new Map(explanation.terms.map((term) => [term.word, number(term.value)]));
    const told = against ? differences(against.parts) : raw;
    this._terms = explanation.query.words.map((word, place) =>
      this._switch(
        `t${place}`,
        word.is_content ? place : null,
        word.text,
        String(place + 1),
        told.get(place),
      ),
    );
    const kinds = areKernels ? "Kernels" : "Signals";
    const signals = fieldset(kinds, this._signals);
    this.raw = make(
      "details",
      { class: "raw", open: !against },
      make("summary", {}, `${kinds}, raw values`),
      signals,
    );
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
      fieldset("Query words", this._terms),
      this.raw,
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

  // Without a place it has no colour: it is context.
  _switch(code, place, name, cue, value) {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => this._go(flipped(this._state, code)));
    return make(
      "label",
      { class: place === null ? "chip context" : `chip ${look(place)}` },
      input,
      make("span", { class: "name" }, name),
      make("sup", {}, cue),
      value === undefined ? null : make("span", { class: "value" }, value),
    );
  }
}

// Of each query word, folded ones among them.
function differences(part) {
  return new Map([...byTerm(part)].map(([place, value]) => [place, signed(value)]));
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
