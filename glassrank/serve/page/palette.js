// A colour, a line and a letter for each signal and query word, as glassrank/explanations/palette.py has
// them. Colours and lines themselves stand in page.css, as the classes c0 … and l0 …

const COLOURS = 8;
const LINES = 5;
const LETTERS = "abcdefghijklmnoprstuvwxyz";

export function look(number) {
  return `c${number % COLOURS} l${number % LINES}`;
}

export function letter(number) {
  let name = "";
  for (let left = number; left >= 0; left = Math.floor(left / LETTERS.length) - 1) {
    name = LETTERS[left % LETTERS.length] + name;
  }
  return name;
}
