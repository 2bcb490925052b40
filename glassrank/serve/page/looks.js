// Which signals and query words are switched on, and by which of them words are coloured.
//
// The address has `by=term` or `by=signal` (query words come first, where there are others to stand
// against), and as `flip` what differs from the start: `s4.t0` for the fifth
// signal and the first query word. So a link shows what its sender saw.

export class Looks {
  constructor(explanation, state) {
    this.byTerm = state.by ? state.by === "term" : Boolean(explanation.against);
    const flipped = new Set((state.flip ?? "").split("."));
    this.signals = explanation.signals.map(
      (signal, place) => signal.is_highlighted !== flipped.has(`s${place}`),
    );
    this._first = explanation.signals.map((signal) => signal.is_highlighted);
    this.terms = explanation.query.words.map((_, place) => !flipped.has(`t${place}`));
  }

  // What colours a word: the number of a signal or of a query word; null if nothing does.
  colour(mark, word) {
    if (!word.is_content) return null;
    if (mark.signal !== null && !this._isOn(mark)) return null;
    if (mark.term !== null && !this.terms[mark.term]) return null;
    return this.byTerm ? mark.term : mark.signal;
  }

  // A word that adds much is coloured even where its signal's words are not at first.
  _isOn(mark) {
    return this.signals[mark.signal] || (mark.stands_out && !this._first[mark.signal]);
  }
}

export function flipped(state, name) {
  const names = new Set((state.flip ?? "").split(".").filter(Boolean));
  if (!names.delete(name)) names.add(name);
  return { flip: [...names].sort().join(".") };
}

// What the switched-on signals and query words add together. A leaf of the sum belongs to a signal
// or query word if it, or a part that it is in, does; others, as the first stage, always count.
export function switchedOn(part, looks) {
  if (part.kind === "signal" && looks.signals[part.number] === false) return 0;
  if (part.kind === "term" && looks.terms[part.number] === false) return 0;
  if (part.children.length === 0) return part.value;
  return part.children.reduce((sum, child) => sum + switchedOn(child, looks), 0);
}
