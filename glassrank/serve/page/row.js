// One result: ranks before and after, title, snippet, and what can be done with it.

import { addressOf } from "./address.js";
import { make, replace, svg } from "./dom.js";
import { characters, count, number, steps } from "./printing.js";

export const CALM = matchMedia("(prefers-reduced-motion: reduce)");

const THUMBS = [
  ["up", "Relevant"],
  ["down", "Not relevant"],
];

// Drawn, since many systems have no font with these signs.
function thumb(action) {
  const hand = "M1.5 7h3v7h-3z M6 7l2.8-5.5c1.3 0 2 1 1.7 2.3L10 6.5h3.3c.9 0 1.5.8 1.3 1.6l-1.2 4.7";
  return svg(
    "svg",
    { class: `thumb ${action}`, viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: `${hand}c-.2.7-.8 1.2-1.5 1.2H6z` }),
  );
}

// A bar of five steps and no percentage, which would say more than is known: see "Probabilities" in
// docs/reference/explanations.md, which says what each step is worth.
function relevanceBar(probability) {
  if (typeof probability !== "number") return null;
  const label = `relevance ${steps(probability)} of 5`;
  const filled = "\u25ae".repeat(steps(probability)).padEnd(5, "\u25af");
  return make("span", { class: "chance", role: "img", "aria-label": label, title: label }, filled);
}

export class Row {
  constructor({ onOpen, onChoose, onFeedback }) {
    this.docId = "";
    this._ranks = make("div", { class: "ranks" });
    this._link = make("a", { class: "title" });
    this._link.addEventListener("click", (event) => {
      onFeedback(this.docId, "click");
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own
      event.preventDefault();
      onOpen(this.docId);
    });
    this._source = make("p", { class: "source" });
    this._source.addEventListener("click", (event) => {
      if (event.target.closest("a")) onFeedback(this.docId, "click");
    });
    this._thumbs = make("div", { class: "thumbs", role: "group", "aria-label": "Rate" });
    for (const [action, label] of THUMBS) {
      const button = make(
        "button",
        {
          ...{ type: "button", class: "quiet", title: label },
          ...{ "aria-label": label, "aria-pressed": "false" },
        },
        thumb(action),
      );
      button.addEventListener("click", () => {
        for (const one of this._thumbs.children) one.setAttribute("aria-pressed", one === button);
        onFeedback(this.docId, action);
      });
      this._thumbs.append(button);
    }
    this._snippet = make("p", { class: "snippet", dir: "auto" });
    this._score = make("p", { class: "hit-score" });
    this._why = make(
      "button",
      { type: "button", class: "why", "aria-expanded": "false" },
      "Explain",
    );
    this._why.addEventListener("click", () => onOpen(this.docId));
    this._pick = make("input", { type: "checkbox" });
    this._pick.addEventListener("change", () => onChoose(this.docId));
    const pick = make("label", { class: "pick" }, this._pick, " compare");
    this.panel = make("div", { class: "panel", hidden: true });
    this.root = make(
      "li",
      { class: "hit" },
      this._ranks,
      make("div", { class: "hit-body" }, make("h3", {}, this._link), this._source, this._snippet),
      make("div", { class: "hit-side" }, this._score, this._thumbs, this._why, pick),
      this.panel,
    );
  }

  show(hit, response, state) {
    this.docId = hit.doc_id;
    const alone = response.model === "none";
    const title = hit.title || hit.doc_id;
    this.root.className = hit.reranked || alone ? "hit" : "hit waiting";
    this.root.dataset.doc = hit.doc_id;
    this._link.href = addressOf({ ...state, doc: hit.doc_id, change: null, flip: null });
    replace(this._link, title);
    replace(this._source, ...source(hit));
    replace(this._snippet, ...marked(hit.snippet));
    replace(this._ranks, ...ranks(hit, alone));
    const shown = hit.reranked || alone ? hit.score : hit.first_score;
    const kind = hit.reranked ? "score" : `${response.method} score`;
    replace(
      this._score,
      make("span", { class: "unseen" }, `${kind} `),
      number(shown),
      relevanceBar(hit.probability),
      rankedBy(hit, response),
      foundBy(hit, response),
    );
    this._score.title = kind;
    this._score.hidden = Boolean(response.interleaved); // scores of two models do not compare
    this._thumbs.hidden = !response.query_id;
    for (const one of this._thumbs.children) one.setAttribute("aria-pressed", "false");
    this._why.setAttribute("aria-label", `Explain ${title}`);
    this._pick.setAttribute("aria-label", `Compare ${title}`);
  }

  open(isOpen) {
    this.panel.hidden = !isOpen;
    if (!isOpen) replace(this.panel);
    this.root.classList.toggle("open", isOpen);
    this._why.setAttribute("aria-expanded", String(isOpen));
    this._why.textContent = isOpen ? "Close" : "Explain";
  }

  chosen(isChosen) {
    this._pick.checked = isChosen;
  }

  focus() {
    this._link.focus();
    const calm = CALM.matches ? "instant" : "smooth";
    this.root.scrollIntoView({ block: "nearest", behavior: calm });
  }
}

// The model of a cascade that ranked the hit: with less time it may be another, with another score.
function rankedBy(hit, response) {
  if (!hit.ranked_by || hit.ranked_by === response.model) return null;
  const title = "the model that ranked this hit; with another budget it may be another";
  return make("span", { class: "ranked-by", title }, `ranked by ${hit.ranked_by}`);
}

// How a hit came in that its words did not bring.
function foundBy(hit, response) {
  const ways = hit.found_by ?? [];
  if (!ways.length || ways.some((way) => way !== "dense" && way !== "graph")) return null;
  const near = response.hits.find((other) => other.doc_id === hit.neighbour_of);
  const told = ways.includes("graph")
    ? `near to ${near ? `hit ${near.rank}` : hit.neighbour_of}`
    : "by meaning";
  const title = `${response.method} had not found it`;
  return make("span", { class: "found-by", title }, told);
}

// Its rank, and how far it moved from its rank in the first stage.
export function ranks(hit, alone = false) {
  const now = make("span", { class: "rank" }, String(hit.rank));
  if (alone || hit.first_rank === null) return [now];
  const gain = hit.first_rank - hit.rank;
  const way = gain > 0 ? "up" : gain < 0 ? "down" : "same";
  const sign = { up: "▲", down: "▼", same: "=" }[way];
  const told = { up: "up", down: "down", same: "unmoved" }[way];
  return [
    now,
    make(
      "span",
      { class: `moved ${way}`, title: `first-stage rank ${count(hit.first_rank)}` },
      make(
        "span",
        { "aria-hidden": "true" },
        gain ? `${sign}\u2009${count(Math.abs(gain))}` : sign,
      ),
      make("span", { class: "unseen" }, `${told} ${gain ? Math.abs(gain) : ""}, `),
    ),
    make(
      "span",
      { class: "was" },
      make("span", { class: "unseen" }, "first stage: "),
      `from ${count(hit.first_rank)}`,
    ),
  ];
}

export function marked(snippet) {
  if (!snippet) return [];
  const cut = characters(snippet.text);
  const pieces = [];
  let at = 0;
  for (const [start, stop] of snippet.matches) {
    pieces.push(cut(at, start), make("mark", {}, cut(start, stop)));
    at = stop;
  }
  return [...pieces, cut(at)];
}

function source(hit) {
  const text = hit.source || hit.doc_id;
  if (!/^https?:\/\//i.test(text)) return [text];
  return [make("a", { href: text, rel: "noopener noreferrer", target: "_blank" }, text)];
}
