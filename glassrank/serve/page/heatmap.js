// A matrix of query and document words as shades: blue for more, orange with a dot for less than 0.
//
// Each cell says its words and number when it is pointed at or reached with the arrow keys; the
// same numbers stand below as a table, for whoever cannot see shades.

import { make, replace } from "./dom.js";
import { number, safe } from "./printing.js";
import { table } from "./tables.js";

const ROW = 22;
const NARROWEST = 7;
const WIDEST = 30;
const LABELS = 130; // pixels for the words on the left
const HEADS = 74; // and above, where columns are wide enough for words
const WORDS_FROM = 12;
const OVERHANG = 30; // of the last word, which leans to the right

export class HeatMap {
  // `onPoint(side, place)` is told the document word that is looked at, null for none.
  constructor(matrix, explanation, onPoint) {
    const turned = matrix.rows === "document" && matrix.columns === "query";
    this._values = turned ? transposed(matrix.values) : matrix.values;
    const words = { query: explanation.query.words, document: explanation.doc.words };
    this._rows = words[turned ? "query" : matrix.rows];
    this._columns = words[turned ? "document" : matrix.columns];
    this._columnSide = turned ? "document" : matrix.columns;
    this._onPoint = onPoint;
    this._at = null;
    const all = this._values.flat().map(Math.abs);
    this._largest = all.reduce((most, value) => Math.max(most, value), Number.MIN_VALUE);
    const size = `${this._rows.length} by ${this._columns.length}`;
    this._canvas = make("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `${matrix.name}, ${size} words. Arrow keys read cells.`,
    });
    this._readout = make("p", { class: "readout", role: "status" });
    this._frame = make("div", { class: "canvas-frame" }, this._canvas);
    this.root = make(
      "figure",
      { class: "heat" },
      make("figcaption", {}, matrix.name),
      this._frame,
      this._readout,
      this._asTable(matrix),
    );
    this._listen();
    new ResizeObserver(() => this.draw()).observe(this._frame);
    const redraw = () => {
      if (this.root.isConnected) this.draw();
      else removeEventListener("themechange", redraw);
    };
    addEventListener("themechange", redraw);
    this._say(null);
  }

  _asTable(matrix) {
    const details = make("details", {}, make("summary", {}, "The same as a table"));
    details.addEventListener(
      "toggle",
      () => {
        // Document words downwards, as there are more of them.
        const apart = matrix.rows !== matrix.columns;
        const [down, across] = apart ? [this._columns, this._rows] : [this._rows, this._columns];
        const rows = (apart ? transposed(this._values) : this._values).map((values, place) => [
          down[place].text,
          ...values.map(number),
        ]);
        const heads = ["", ...across.map((word) => word.text)];
        details.append(table(matrix.name, heads, rows, "heat-table"));
      },
      { once: true },
    );
    return details;
  }

  draw() {
    const columns = Math.max(1, this._columns.length);
    const room = this._frame.clientWidth - LABELS - OVERHANG;
    if (room <= 0) return;
    this._cell = Math.max(NARROWEST, Math.min(WIDEST, Math.floor(room / columns)));
    this._heads = this._cell >= WORDS_FROM ? HEADS : 4;
    const width = LABELS + this._cell * columns + (this._heads === HEADS ? OVERHANG : 0);
    const height = this._heads + ROW * this._rows.length;
    const scale = devicePixelRatio || 1;
    this._canvas.width = Math.ceil(width * scale);
    this._canvas.height = Math.ceil(height * scale);
    this._canvas.style.width = `${width}px`;
    this._canvas.style.height = `${height}px`;
    const pen = this._canvas.getContext("2d");
    pen.scale(scale, scale);
    this._colours = this._themeColours();
    this._drawWords(pen);
    this._values.forEach((row, y) => row.forEach((value, x) => this._drawCell(pen, value, x, y)));
    if (this._at) {
      pen.strokeStyle = this._colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(...this._corner(this._at.x, this._at.y), this._cell, ROW);
    }
  }

  _drawWords(pen) {
    pen.fillStyle = this._colours.ink;
    pen.font = `12px ${getComputedStyle(this.root).fontFamily}`;
    pen.textBaseline = "middle";
    this._rows.forEach((word, y) => {
      pen.fillText(safe(word.text), 0, this._heads + ROW * (y + 0.5), LABELS - 10);
    });
    if (this._heads < HEADS) return;
    this._columns.forEach((word, x) => {
      pen.save();
      pen.translate(LABELS + this._cell * (x + 0.5), this._heads - 6);
      pen.rotate(-Math.PI / 2.5);
      pen.fillText(safe(word.text), 0, 0, HEADS);
      pen.restore();
    });
  }

  _drawCell(pen, value, x, y) {
    const [left, top] = this._corner(x, y);
    pen.globalAlpha = 0.04 + 0.9 * (Math.abs(value) / this._largest) ** 1.3;
    pen.fillStyle = value < 0 ? this._colours.less : this._colours.more;
    pen.fillRect(left + 0.5, top + 0.5, this._cell - 1, ROW - 1);
    if (value < 0 && Math.abs(value) > this._largest / 20) {
      pen.globalAlpha = 0.9;
      pen.fillStyle = this._colours.ink;
      pen.fillRect(left + this._cell / 2 - 1, top + ROW / 2 - 1, 2, 2);
    }
    pen.globalAlpha = 1;
  }

  _corner(x, y) {
    return [LABELS + this._cell * x, this._heads + ROW * y];
  }

  // By way of an element, because a canvas cannot read colours that depend on the theme.
  _themeColours() {
    const probe = this.root.appendChild(make("span", { hidden: true }));
    const read = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const colours = { ink: read("--ink"), more: read("--more"), less: read("--less") };
    probe.remove();
    return colours;
  }

  _listen() {
    const cellAt = (event) => {
      const x = Math.floor((event.offsetX - LABELS) / this._cell);
      const y = Math.floor((event.offsetY - this._heads) / ROW);
      return this._values[y]?.[x] === undefined ? null : { x, y };
    };
    this._canvas.addEventListener("pointermove", (event) => this._go(cellAt(event)));
    this._canvas.addEventListener("pointerleave", () => this._go(null));
    this._canvas.addEventListener("blur", () => this._go(null));
    this._canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const from = this._at ?? { x: 0, y: 0 };
      const target = this._at ? { x: from.x + step[0], y: from.y + step[1] } : from;
      if (this._values[target.y]?.[target.x] !== undefined) this._go(target);
    });
  }

  _go(cell) {
    if (cell?.x === this._at?.x && cell?.y === this._at?.y) return;
    this._at = cell;
    this.draw();
    this._say(cell);
    this._onPoint(this._columnSide, cell ? cell.x : null);
  }

  _say(cell) {
    const hint = "Point at a cell, or focus the map and use the arrow keys.";
    if (!cell) {
      replace(this._readout, make("span", { class: "faint" }, hint));
      return;
    }
    const pair = `“${this._rows[cell.y].text}” and “${this._columns[cell.x].text}”: `;
    replace(this._readout, pair, make("b", {}, number(this._values[cell.y][cell.x])));
  }
}

function transposed(values) {
  return (values[0] ?? []).map((_, column) => values.map((row) => row[column]));
}
