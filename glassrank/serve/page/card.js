// The card beside a word: what it is to the query; when the word is chosen, also what it could be.

import { make, replace } from "./dom.js";

const GAP = 6;

class Card {
  constructor() {
    this.root = make("div", { class: "card", hidden: true });
    this._pinned = null; // the word to which the focus goes back
    document.body.append(this.root);
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
    document.addEventListener("pointerdown", (event) => {
      if (this._pinned && !this.root.contains(event.target)) this.close(false);
    });
  }

  // While a word is pointed at. A card that was opened on purpose stays.
  hint(word, title, facts) {
    if (this._pinned) return;
    if (word === null) {
      this.root.hidden = true;
      return;
    }
    this.root.removeAttribute("role");
    this.root.classList.remove("pinned");
    // Words carry the same sentence as their label, so it is not read out twice.
    this.root.setAttribute("aria-hidden", "true");
    this._show(word, title, facts, null);
  }

  // Opened on purpose: takes the focus. `onChange(by)` with an empty string removes the word.
  open(word, title, facts, onChange) {
    this._pinned = word;
    const input = make("input", { type: "text", "aria-label": `Replace “${title}” by` });
    const change = (by) => {
      this.close();
      onChange(by);
    };
    const form = make(
      "form",
      {
        class: "change",
        on: {
          submit: (event) => {
            event.preventDefault();
            change(input.value.trim());
          },
        },
      },
      make("button", { type: "button", on: { click: () => change("") } }, "Remove"),
      make("span", { class: "faint" }, "or"),
      input,
      make("button", { type: "submit" }, "Replace"),
    );
    this.root.setAttribute("role", "dialog");
    this.root.setAttribute("aria-label", `What if “${title}” were not there?`);
    this.root.removeAttribute("aria-hidden");
    this.root.classList.add("pinned");
    this._show(word, title, facts, form);
    form.querySelector("button").focus();
  }

  close(giveFocusBack = true) {
    const word = this._pinned;
    this._pinned = null;
    this.root.hidden = true;
    if (giveFocusBack && word?.isConnected) {
      word.focus();
      this.root.hidden = true; // focus alone would bring the hint up again
    }
  }

  _show(word, title, facts, form) {
    replace(
      this.root,
      make("p", { class: "card-title" }, title),
      make("ul", { class: "facts" }, ...facts.map((fact) => make("li", {}, fact))),
      form,
    );
    this.root.hidden = false;
    const place = word.getClientRects()[0] ?? word.getBoundingClientRect();
    const own = this.root.getBoundingClientRect();
    const left = Math.min(place.left, innerWidth - own.width - GAP);
    const below = place.bottom + GAP;
    const above = place.top - own.height - GAP;
    const top = below + own.height > innerHeight && above > 0 ? above : below;
    this.root.style.left = `${Math.max(GAP, left) + scrollX}px`;
    this.root.style.top = `${top + scrollY}px`;
  }
}

let only = null;

export function card() {
  only ??= new Card();
  return only;
}
