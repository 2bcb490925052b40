// A slider for milliseconds: short steps where they matter, long ones beyond.

import { freshId, make } from "./dom.js";
import { budget as budgetText } from "./printing.js";

const STEPS = [
  ...[1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 75, 100, 125, 150, 200, 250, 300, 400, 500],
  ...[750, 1000, 1500, 2000, 3000, 5000, 10000],
];

export class Slider {
  // From the first to the second of two times; `onInput(ms)` is called while it is moved.
  constructor(label, [least, most], onInput) {
    this._steps = STEPS.filter((ms) => ms >= least && ms <= most);
    const id = freshId("slider");
    this._input = make("input", {
      id,
      type: "range",
      min: 0,
      max: this._steps.length - 1,
      step: 1,
    });
    this._value = make("span", { class: "chosen-value", "aria-hidden": "true" });
    this._input.addEventListener("input", () => {
      const ms = this._steps[Number(this._input.value)];
      this._tell(ms);
      onInput(ms);
    });
    this.root = make(
      "div",
      { class: "slider" },
      make("label", { for: id }, label),
      this._input,
      this._value,
    );
  }

  show(ms) {
    // An address may name any number; the knob then stands at the step nearest to it.
    const distance = this._steps.map((step) => Math.abs(Math.log(step / ms)));
    this._input.value = String(distance.indexOf(Math.min(...distance)));
    this._tell(ms);
  }

  _tell(ms) {
    this._value.textContent = budgetText(ms);
    this._input.setAttribute("aria-valuetext", `${ms} milliseconds`);
  }
}
