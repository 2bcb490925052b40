// Everything that is shown has an address: state in, query string out, and back.

const NUMBERS = new Set(["k", "budget", "ms"]);
const NAMES = [
  ...["view", "q", "k", "budget", "model", "method", "doc", "by", "flip", "change"],
  ...["left", "right", "a", "b", "firsts", "sort", "filter", "cluster", "measure", "ms"],
];

// A state has only what differs from what would be shown anyway.
export function readAddress(search = location.search) {
  const given = new URLSearchParams(search);
  const state = {};
  for (const name of NAMES) {
    const value = given.get(name);
    if (value === null || value === "") continue;
    if (!NUMBERS.has(name)) state[name] = value;
    else if (Number(value) > 0) state[name] = Number(value);
  }
  return state;
}

export function addressOf(state) {
  const given = new URLSearchParams();
  for (const name of NAMES) {
    const value = state[name];
    if (value !== undefined && value !== null && value !== "") given.set(name, String(value));
  }
  const text = given.toString();
  return text ? `?${text}` : "./";
}

// What stays of a state in another view: the search that one comes back to.
export function searchOf({ q, k, budget, model, method }) {
  return { q, k, budget, model, method };
}

// Calls `changed` with the state whenever it is another one: by `go`, or by the browser's buttons.
export class Address {
  constructor(changed) {
    this.state = readAddress();
    this._changed = changed;
    addEventListener("popstate", () => {
      this.state = readAddress();
      changed(this.state);
    });
  }

  // What is null or undefined in `changes` leaves the address. `quietly` takes the place of the
  // state before it, as for a slider that is being moved.
  // Tells whether that is another address than before.
  go(changes, quietly = false) {
    return this.to({ ...this.state, ...changes }, quietly);
  }

  to(state, quietly = false) {
    const target = addressOf(state);
    if (target === addressOf(this.state)) return false;
    if (quietly) history.replaceState(null, "", target);
    else history.pushState(null, "", target);
    this.state = readAddress();
    this._changed(this.state);
    return true;
  }
}
