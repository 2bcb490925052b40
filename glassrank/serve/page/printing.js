// How numbers and texts are printed: digit for digit as glassrank/explanations/printing.py does.

const DECIMALS = 4;
export const WORDS_ADD = "What each word of the document adds to the score";
const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;

export function number(value) {
  const text = rounded(value);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

export function signed(value) {
  const text = number(value);
  return text.startsWith("-") || Number(text) === 0 ? text : `+${text}`;
}

// `toFixed` rounds a tie up, Python rounds it to an even digit. With four decimals a number lies
// exactly between two others only if it is an odd number of 32nds; five decimals are then exact.
function rounded(value) {
  const text = value.toFixed(DECIMALS);
  if (Math.abs(value * 32) % 2 !== 1) return text;
  const lower = value.toFixed(DECIMALS + 1).slice(0, -1);
  return Number(lower.at(-1)) % 2 === 0 ? lower : text;
}

const STEPS = [0.05, 0.1, 0.2, 0.3, 0.5];

// 0.34 as four of five steps: probabilities are not known any better.
export function steps(probability) {
  return STEPS.filter((step) => probability >= step).length;
}

export function count(value) {
  return value.toLocaleString("en-US");
}

export function milliseconds(value) {
  return `${value.toLocaleString("en-US", { maximumFractionDigits: value < 100 ? 1 : 0 })} ms`;
}

// A budget as somebody chose it, with no digit more.
export function budget(value) {
  return `${value.toLocaleString("en-US", { maximumFractionDigits: 3 })} ms`;
}

// As long as the text, so that places in it stay true.
export function safe(text) {
  return text.replace(UNSAFE, "\ufffd");
}

// Python counts characters where JavaScript counts 16-bit units.
export function characters(text) {
  const points = Array.from(text);
  return (start, stop) => points.slice(start, stop).join("");
}
