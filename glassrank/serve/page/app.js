// Which view is shown: read from the address, at the start and whenever it changes.

import { Address, addressOf, readAddress, searchOf } from "./address.js";
import { getInfo } from "./api.js";
import { BudgetView } from "./budget.js";
import { CompareView } from "./compare.js";
import { make, replace } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { ModelsView } from "./models.js";
import { QueriesView } from "./queries.js";
import { SearchView } from "./search.js";
import { askForKey } from "./signin.js";
import { TextsView } from "./texts.js";

const VIEWS = {
  search: SearchView,
  compare: CompareView,
  models: ModelsView,
  queries: QueriesView,
  budget: BudgetView,
  texts: TextsView,
};

const main = document.getElementById("main");
const status = document.getElementById("status");

async function start() {
  let info;
  try {
    info = await getInfo();
  } catch (error) {
    if (error.status === 401) askForKey(main, start);
    else replace(main, make("p", { class: "message", role: "alert" }, error.message));
    return;
  }
  const context = { info, say: (text) => (status.textContent = text) };
  const made = new Map(); // views keep what they show while another one is seen
  let shown = null;

  function show(state) {
    const name = Object.hasOwn(VIEWS, state.view ?? "search") ? (state.view ?? "search") : "search";
    if (!made.has(name)) made.set(name, new VIEWS[name](context));
    const view = made.get(name);
    const other = view !== shown;
    if (other) {
      replace(main, view.root);
      scrollTo(0, 0);
      // Whoever does not see the page is told that it is another one.
      if (shown) (view.root.querySelector("h1[tabindex]") ?? main).focus({ preventScroll: true });
    }
    shown = view;
    main.className = name;
    document.title = `${view.title(state)} · glassrank`;
    showLinks(name, state);
    view.update(state);
  }

  context.address = new Address(show);
  document.addEventListener("click", (event) => follow(event, context.address));
  listenToKeys(() => shown, context.address);
  document.body.dataset.ready = "";
  show(context.address.state);
}

function showLinks(name, state) {
  for (const link of document.querySelectorAll("header [data-view]")) {
    const own = link.dataset.view;
    const current = own === name || (own === "search" && ["compare", "models"].includes(name));
    if (current && !link.classList.contains("brand")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    const view = own === "search" ? null : own;
    link.href = link.classList.contains("brand") ? "./" : addressOf({ ...searchOf(state), view });
  }
}

// Links within the page change the address without loading anything.
function follow(event, address) {
  const link = event.target.closest?.("a[data-go], a[data-view]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  address.to(readAddress(new URL(link.href).search));
}

start();
