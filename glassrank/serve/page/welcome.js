// What stands below an empty search box.

import { addressOf } from "./address.js";
import { make } from "./dom.js";
import { count } from "./printing.js";

const ENCODING =
  "Documents are being encoded in the background; results get deeper until that is done.";

export function welcome(info) {
  const documents = `${count(info.index.documents)} documents`;
  const searched = info.subject ? `${info.subject} (${documents})` : documents;
  const models = info.models.length
    ? info.models.map((model) => model.name).join(", ")
    : "no model";
  return make(
    "div",
    { class: "welcome" },
    make(
      "p",
      { class: "lead" },
      `Search ${searched}, and see why each result is where it is.`,
    ),
    make("p", { class: "faint" }, `Re-ranked by ${models}, within a time budget that you choose.`),
    info.encoding ? make("p", { class: "faint" }, ENCODING) : null,
    samples(info.samples ?? []),
  );
}

function samples(queries) {
  if (queries.length === 0) return null;
  const links = queries.map((q) =>
    make("li", {}, make("a", { href: addressOf({ q }), "data-go": true }, q)),
  );
  return make("ul", { class: "samples", "aria-label": "Queries to try" }, ...links);
}
