// What if a word were not there, or another one? How score and rank would move.
//
// In the address a change is `document.12` for a word that is removed, `query.1.meaning` for one
// that is replaced.

import { explain, latest } from "./api.js";
import { make, replace } from "./dom.js";
import { count, number } from "./printing.js";
import { table } from "./tables.js";

const SHOWN = 8;

export function changeOf(text) {
  const found = /^(query|document)\.(\d+)(?:\.(.*))?$/su.exec(text ?? "");
  if (!found) return null;
  return { side: found[1], word: Number(found[2]), by: found[3] ?? "" };
}

export function changeText(side, word, by) {
  return by ? `${side}.${word}.${by}` : `${side}.${word}`;
}

// The strip above a text that tells what a change does.
export class ChangeStrip {
  // `form` is what the explanation was asked with; `go` changes the address.
  constructor(form, explanation, go) {
    this._form = form;
    this._explanation = explanation;
    this._go = go;
    this._ask = latest();
    this.root = make("div", { class: "what-if", role: "status", hidden: true });
  }

  async show(change) {
    this.root.hidden = change === null;
    if (change === null) {
      replace(this.root);
      return;
    }
    const { query, doc } = this._explanation;
    const words = change.side === "query" ? query.words : doc.words;
    const word = words[change.word]?.text ?? "";
    const title = change.by ? `With “${change.by}” instead of “${word}”` : `Without “${word}”`;
    const whose = change.side === "query" ? " in the query" : "";
    const head = make("p", { class: "what-if-title" }, `${title}${whose} …`);
    replace(this.root, head);
    try {
      const asked = { ...this._form, change };
      const response = await this._ask((signal) => explain(asked, signal));
      if (response) this._tell(`${title}${whose}`, change, response);
    } catch (error) {
      replace(this.root, make("p", { class: "message" }, error.message), this._putBack());
    }
  }

  _tell(title, change, response) {
    const moved = response.moved[response.doc];
    replace(
      this.root,
      make("p", { class: "what-if-title" }, title),
      make(
        "p",
        { class: "moves" },
        move(
          "score",
          number(moved.score_before),
          number(moved.score_after),
          moved.score_after - moved.score_before,
        ),
        ...ranked(response),
        rounded(moved, this._explanation),
      ),
      make("p", { class: "actions" }, this._putBack(), this._sideBySide(change, response)),
      others(response),
    );
  }

  _putBack() {
    const click = () => this._go({ change: null });
    return make("button", { type: "button", on: { click } }, "Put it back");
  }

  // Both texts under the same query; a changed query has nothing to stand beside.
  _sideBySide(change, response) {
    if (change.side === "query") return null;
    const click = () => {
      const first = this._form.first_score?.[0];
      this._go({
        ...{ view: "texts", q: response.query, a: this._explanation.doc.text, b: response.text },
        ...{ doc: null, change: null, firsts: first === undefined ? null : `${first},${first}` },
      });
    };
    return make("button", { type: "button", on: { click } }, "Before and after, side by side");
  }
}

// Alone, it has no rank: there was no time to score others again.
function ranked(response) {
  const { rank_before, rank_after } = response.moved[response.doc];
  const others = response.moved.length;
  if (others < 2 && response.doc_ids.length > 0) {
    return [make("span", { class: "faint" }, "there was no time to rank the others anew")];
  }
  return [
    move("rank", rank_before, rank_after, rank_before - rank_after),
    make("span", { class: "faint" }, `of ${count(others)} candidates`),
  ];
}

// Stored vectors are rounded, those of a changed text are not; where that shows, it is said.
function rounded(moved, explanation) {
  if (number(moved.score_before) === number(explanation.score)) return null;
  return make(
    "span",
    { class: "faint" },
    "vectors are rounded for speed, so last digits differ from above",
  );
}

function move(name, before, after, gain) {
  const way = gain > 0 ? "up" : gain < 0 ? "down" : "";
  const sign = { up: "▲", down: "▼" }[way] ?? "=";
  return make(
    "span",
    { class: "move" },
    `${name} `,
    make("span", { class: "before" }, String(before)),
    " → ",
    make("b", { class: `after ${way}` }, String(after)),
    make("span", { class: way, "aria-hidden": "true" }, ` ${sign}`),
  );
}

// Documents that change places with it.
function others(response) {
  const rows = response.moved
    .map((row, place) => ({ ...row, doc_id: response.doc_ids[place], place }))
    .filter((row) => row.rank_before !== row.rank_after && row.place !== response.doc)
    .sort((one, other) => one.rank_after - other.rank_after);
  if (rows.length === 0) return null;
  const cells = rows
    .slice(0, SHOWN)
    .map((row) => [
      row.doc_id,
      ...[row.rank_before, row.rank_after].map(String),
      ...[row.score_before, row.score_after].map(number),
    ]);
  const more = rows.length > SHOWN ? `, and ${count(rows.length - SHOWN)} more` : "";
  return make(
    "details",
    {},
    make("summary", {}, `${count(rows.length)} other${rows.length > 1 ? "s" : ""} would move`),
    table(`Others that move${more}`, ["document", "rank", "then", "score", "then"], cells),
  );
}
