// A service with a key asks for it once; the browser forgets it with the tab.

import { keepKey } from "./api.js";
import { make, replace } from "./dom.js";

export function askForKey(place, again) {
  const input = make("input", {
    type: "password",
    id: "api-key",
    autocomplete: "off",
    required: true,
  });
  const submit = (event) => {
    event.preventDefault();
    keepKey(input.value.trim());
    again();
  };
  replace(
    place,
    make(
      "form",
      { class: "key-form", on: { submit } },
      make("h1", {}, "Sign in"),
      make("p", { class: "faint" }, "This service needs an API key."),
      make("label", { for: "api-key" }, "API key"),
      make(
        "div",
        { class: "ask" },
        input,
        make("button", { type: "submit", class: "primary" }, "Open"),
      ),
    ),
  );
  input.focus();
}
