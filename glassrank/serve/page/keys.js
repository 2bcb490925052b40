// Shortcuts for the keyboard, and the list of them.

import { searchOf } from "./address.js";
import { make } from "./dom.js";

const HELP = [
  ["/", "to the search box"],
  ["j  k", "next and previous result; ↓ from the search box"],
  ["e", "explain the result, or close it"],
  ["x", "choose the result for a comparison"],
  ["c", "compare the two that are chosen"],
  ["←  →", "between words of a text, or cells of a matrix"],
  ["Enter", "on a word: remove or replace it"],
  ["Esc", "close what is open"],
  ["?", "this list"],
];

export function listenToKeys(viewNow, address) {
  const dialog = makeDialog();
  document.getElementById("keys").addEventListener("click", () => dialog.showModal());
  const actions = {
    "/": () => {
      if (!viewNow().controls) address.to(searchOf(address.state));
      viewNow().controls?.box.focus();
      viewNow().controls?.box.select();
    },
    "?": () => dialog.showModal(),
    j: () => viewNow().list?.focusNext(1),
    k: () => viewNow().list?.focusNext(-1),
    e: () => {
      const docId = viewNow().list?.current;
      if (docId) viewNow().toggle(docId);
    },
    x: () => viewNow().chooseCurrent?.(),
    c: () => viewNow().compareChosen?.(),
    Escape: () => {
      if (address.state.change) address.go({ change: null });
      else if (address.state.doc && viewNow().list) closePanel(viewNow(), address);
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.key === "ArrowDown" && event.target.id === "query") {
      event.preventDefault();
      viewNow().list.focusNext(1);
      return;
    }
    if (isTyping(event.target)) {
      if (event.key !== "Escape") return;
      event.preventDefault(); // a search box would be emptied
      event.target.blur();
      return;
    }
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

// The focus goes to the result that was explained, not to the top of the page.
function closePanel(view, address) {
  const row = view.list.row(address.state.doc);
  view.toggle(address.state.doc);
  row?.focus();
}

function isTyping(element) {
  return element.matches?.(
    "input:not([type=checkbox], [type=radio], [type=range]), textarea, select",
  );
}

function makeDialog() {
  const rows = HELP.map(([keys, job]) => [
    make("dt", {}, make("kbd", {}, keys)),
    make("dd", {}, job),
  ]);
  const close = make("button", { type: "button" }, "Close");
  const dialog = make(
    "dialog",
    { "aria-labelledby": "keys-title" },
    make("h2", { id: "keys-title" }, "Keys"),
    make("dl", {}, ...rows.flat()),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  return dialog;
}
