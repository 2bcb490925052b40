// Light or dark: as the system says, unless somebody chose otherwise on this page.
"use strict";
{
  const CHOICES = ["auto", "light", "dark"];
  const KEY = "glassrank.theme";

  function chosen() {
    try {
      const kept = localStorage.getItem(KEY);
      return CHOICES.includes(kept) ? kept : "auto";
    } catch {
      return "auto"; // where nothing may be kept, the system decides
    }
  }

  function apply(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  apply(chosen());

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    let theme = chosen();
    const label = () => {
      button.textContent = `Theme: ${theme}`;
    };
    label();
    button.addEventListener("click", () => {
      theme = CHOICES[(CHOICES.indexOf(theme) + 1) % CHOICES.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // It then lasts as long as the page does.
      }
      apply(theme);
      label();
      // Pictures on a canvas do not follow the style sheet by themselves.
      dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      dispatchEvent(new Event("themechange")),
    );
  });
}
