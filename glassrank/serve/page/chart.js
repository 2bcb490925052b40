// Quality against milliseconds as lines, like Figure 2 of the TK paper.
//
// Each line is solid, or dashed in its own way, up to a marker where it is best, and dotted beyond.
// Lines differ in dashes and markers as well as in colour.

import { svg } from "./dom.js";
import { count } from "./printing.js";

const WIDE = 760;
const NARROW = 320; // of a phone, where a wide chart's letters would be too small to read
const HEIGHT = 400;
const MARGIN = { left: 58, right: 20, top: 24, bottom: 46 };
const FAR_FASTER = 20;
const DASHES = ["", "9 4", "9 4 2 4", "4 3", "12 3 3 3 3 3"];
const KINDS = 7; // colours k0 … k6 of page.css
const MARKERS = ["circle", "square", "triangle", "diamond"];

export function lineLook(number) {
  return {
    class: `k${number % KINDS}`,
    dashes: DASHES[number % DASHES.length],
    marker: MARKERS[number % MARKERS.length],
  };
}

// `lines` have {label, points: [{ms, value}] from depth 0 on, best: a number of a point}. A chart
// in less than its full `width` has fewer marks on its axis, and letters of the same size.
export class Chart {
  constructor({ lines, firstStage, mostMs, label, width }) {
    this._width = Math.min(WIDE, Math.max(NARROW, width));
    this._scaleX = timeScale(lines, mostMs, this._width);
    const values = lines.flatMap((line) => line.points.map((point) => point.value));
    this._scaleY = valueScale([...values, firstStage]);
    this._guide = svg("line", { class: "guide", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    this.root = svg(
      "svg",
      { class: "chart", viewBox: `0 0 ${this._width} ${HEIGHT}`, role: "img", "aria-label": label },
      ...this._axes(label),
      this._flat(firstStage),
      ...lines.flatMap((line, number) => this._line(line, lineLook(number), mostMs)),
      this._guide,
    );
  }

  // A vertical line at that time.
  guide(ms) {
    const x = this._scaleX.at(ms);
    this._guide.setAttribute("x1", x);
    this._guide.setAttribute("x2", x);
  }

  // The time that a pointer is at.
  timeAt(event) {
    const box = this.root.getBoundingClientRect();
    return this._scaleX.back(((event.clientX - box.left) / box.width) * this._width);
  }

  _axes(label) {
    const bottom = HEIGHT - MARGIN.bottom;
    const right = this._width - MARGIN.right;
    const rows = this._scaleY.ticks.flatMap((value) => {
      const y = this._scaleY.at(value);
      return [
        svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }),
        svg(
          "text",
          { class: "tick", x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" },
          value.toFixed(this._scaleY.digits),
        ),
      ];
    });
    const columns = this._scaleX.ticks.flatMap((ms) => {
      const x = this._scaleX.at(ms);
      return [
        svg("line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: bottom }),
        svg("text", { class: "tick", x, y: bottom + 18, "text-anchor": "middle" }, count(ms)),
      ];
    });
    return [
      ...rows,
      ...columns,
      svg("text", { class: "axis", x: MARGIN.left, y: 13 }, label),
      svg(
        "text",
        { class: "axis", x: right, y: HEIGHT - 8, "text-anchor": "end" },
        "milliseconds to re-rank",
      ),
    ];
  }

  _flat(value) {
    const y = this._scaleY.at(value);
    const x2 = this._width - MARGIN.right;
    return svg("line", { class: "first", x1: MARGIN.left, x2, y1: y, y2: y });
  }

  _line(line, look, mostMs) {
    const spot = (point) =>
      `${this._scaleX.at(point.ms).toFixed(1)},${this._scaleY.at(point.value).toFixed(1)}`;
    const inside = line.points.filter((point) => point.ms <= mostMs);
    const before = inside.filter((_, place) => place <= line.best);
    const after = inside.filter((_, place) => place >= line.best);
    const last = line.points.at(-1);
    if (last.ms < mostMs) after.push({ ms: mostMs, value: last.value });
    const best = line.points[line.best];
    const shown = [
      svg("polyline", {
        class: `curve ${look.class}`,
        "stroke-dasharray": look.dashes,
        points: before.map(spot).join(" "),
      }),
      svg("polyline", { class: `curve beyond ${look.class}`, points: after.map(spot).join(" ") }),
    ];
    if (best.ms > mostMs) return shown;
    const [x, y] = [this._scaleX.at(best.ms), this._scaleY.at(best.value)];
    return [
      ...shown,
      marker(look, x, y),
      svg(
        "text",
        { class: `depth ${look.class}`, x, y: y - 10, "text-anchor": "middle" },
        count(line.best),
      ),
    ];
  }
}

export function marker(look, x, y) {
  const shapes = {
    circle: [
      [-4, 0],
      [0, 0],
    ],
    square: [
      [-4, -4],
      [4, -4],
      [4, 4],
      [-4, 4],
    ],
    triangle: [
      [0, -5],
      [5, 4],
      [-5, 4],
    ],
    diamond: [
      [0, -5.5],
      [5.5, 0],
      [0, 5.5],
      [-5.5, 0],
    ],
  };
  if (look.marker === "circle")
    return svg("circle", { class: `marker ${look.class}`, cx: x, cy: y, r: 4.5 });
  const points = shapes[look.marker].map(([right, down]) => `${x + right},${y + down}`);
  return svg("polygon", { class: `marker ${look.class}`, points: points.join(" ") });
}

// From 0 on, unless one line would be lost in the corner beside another that is far slower: then
// the axis is one of ratios, which has no 0, and begins a little before the fastest.
function timeScale(lines, mostMs, width) {
  const [left, right] = [MARGIN.left, width - MARGIN.right];
  const fastest = Math.min(...lines.map((line) => line.points.at(-1).ms));
  if (fastest > mostMs / FAR_FASTER) {
    const step = niceStep(mostMs / (width < WIDE ? 3 : 6));
    return {
      at: (ms) => left + ((right - left) * Math.min(ms, mostMs)) / mostMs,
      back: (x) => Math.max(0, Math.min(mostMs, ((x - left) / (right - left)) * mostMs)),
      ticks: steps(0, mostMs, step),
    };
  }
  const start = 0.7 * Math.min(...lines.map((line) => line.points[1]?.ms ?? mostMs));
  const whole = Math.log(mostMs / start);
  const at = (ms) =>
    left + ((right - left) * Math.log(Math.min(Math.max(ms, start), mostMs) / start)) / whole;
  const times = width < WIDE ? [1] : [1, 2, 5];
  const ticks = [0.1, 1, 10, 100, 1000, 10000].flatMap((power) => times.map((n) => n * power));
  return {
    at,
    back: (x) => start * Math.exp(Math.max(0, Math.min(1, (x - left) / (right - left))) * whole),
    ticks: ticks.filter((ms) => ms >= start && ms <= mostMs),
  };
}

function valueScale(values) {
  const lowest = Math.min(...values);
  const highest = Math.max(...values);
  const step = niceStep((highest - lowest || 0.1) / 4);
  const [low, high] = [Math.floor(lowest / step) * step, Math.ceil(highest / step) * step || step];
  const [top, bottom] = [MARGIN.top, HEIGHT - MARGIN.bottom];
  return {
    at: (value) => bottom - ((bottom - top) * (value - low)) / (high - low || 1),
    ticks: steps(low, high, step),
    digits: Math.max(1, -Math.floor(Math.log10(step) + 1e-9)),
  };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough * 0.999);
}

function steps(low, high, step) {
  const many = Math.round((high - low) / step);
  return Array.from({ length: many + 1 }, (_, place) => low + place * step).filter(
    (value) => value <= high * (1 + 1e-9),
  );
}
