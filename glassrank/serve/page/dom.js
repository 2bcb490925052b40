// Elements from data. Strings become text nodes and nothing else: a document full of HTML is shown
// as the text it is.

import { safe } from "./printing.js";

const SVG = "http://www.w3.org/2000/svg";

// `make("a", {href: "?", on: {click: f}}, "text", child, …)`; children that are null are left out.
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, safe(String(value)));
    }
  }
  put(element, ...children);
  return element;
}

// Instead of what was there before.
export function replace(element, ...children) {
  element.replaceChildren();
  put(element, ...children);
}

export function put(element, ...children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : safe(String(child)));
  }
}

// Decoration beside a number that stands there as text: from 0 to 1 of its place.
export function bar(share, className) {
  const element = make("span", { class: `bar ${className}`, "aria-hidden": "true" });
  element.style.setProperty("--share", String(Math.max(0, Math.min(1, share))));
  return element;
}

let made = 0;

export function freshId(prefix) {
  made += 1;
  return `${prefix}-${made}`;
}
