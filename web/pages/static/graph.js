// A line of the last hour, drawn as SVG paths, with the height of its scale and its beginning.

import { number } from "./words.js";

const WIDTH = 240;
const HEIGHT = 48;
const HOUR_MS = 3_600_000;
const SHORTEST_MS = 120_000; // of the axis, while there is less to show
const STEP_MS = 10_000; // the newest point is written over until so much has passed

// The next of 1, 2, 5, 10, 20, 50, …, so that a scale rarely changes.
export function roundUp(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= value);
}

export class Graph {
  constructor(figure) {
    this.points = [];
    this.area = figure.querySelector(".area");
    this.line = figure.querySelector(".line");
    this.top = figure.querySelector("[data-top]");
    this.begin = figure.querySelector("[data-begin]");
  }

  clear() {
    this.points = [];
  }

  keep(at, value) {
    const { points } = this;
    if (points.length && Math.floor(points.at(-1)[0] / STEP_MS) === Math.floor(at / STEP_MS)) points.pop();
    points.push([at, value]);
    while (points[0][0] < at - HOUR_MS) points.shift();
  }

  add(at, value) {
    this.keep(at, value);
    this.draw();
  }

  draw() {
    const end = this.points.at(-1)[0];
    const span = Math.max(SHORTEST_MS, end - this.points[0][0]);
    const highest = roundUp(Math.max(...this.points.map((point) => point[1])));
    const x = (at) => (WIDTH - ((end - at) / span) * WIDTH).toFixed(1);
    const path = this.points.map(([at, value]) => `${x(at)} ${(HEIGHT - 2 - (value / highest) * (HEIGHT - 6)).toFixed(1)}`).join("L");
    this.line.setAttribute("d", `M${path}`);
    this.area.setAttribute("d", `M${x(this.points[0][0])} ${HEIGHT}L${path}L${WIDTH} ${HEIGHT}Z`);
    const minutes = Math.round(span / 60_000);
    const top = number.format(highest);
    const begin = minutes >= 60 ? "1 h ago" : `${minutes} min ago`;
    if (this.top.textContent !== top) this.top.textContent = top;
    if (this.begin.textContent !== begin) this.begin.textContent = begin;
  }
}
