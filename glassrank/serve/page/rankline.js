// Two ranks on a line of ratios: a ring for before, a disc for after. The best rank is to the left.

import { svg } from "./dom.js";

const WIDTH = 160;
const HEIGHT = 16;
const EDGE = 7;

// `scale` is the number of powers of ten. What has no rank stands at the very end.
export function rankLine(before, after, scale) {
  const place = (rank) => {
    const share = rank === null ? 1 : Math.log10(rank) / scale;
    return EDGE + (WIDTH - 2 * EDGE) * Math.min(1, share);
  };
  const [from, to, y] = [place(before), place(after), HEIGHT / 2];
  const ticks = Array.from({ length: scale + 1 }, (_, power) => place(10 ** power));
  const way = to < from ? "up" : to > from ? "down" : "same";
  return svg(
    "svg",
    { class: `rank-line ${way}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    ...ticks.map((x) => svg("line", { class: "tick", x1: x, x2: x, y1: 3, y2: HEIGHT - 3 })),
    svg("line", { class: "way", x1: from, x2: to, y1: y, y2: y }),
    svg("circle", { class: "before", cx: from, cy: y, r: 3.5 }),
    svg("circle", { class: "after", cx: to, cy: y, r: 4 }),
  );
}
