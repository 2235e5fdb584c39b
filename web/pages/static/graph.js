// A small line of the last two minutes, drawn as SVG paths.

const WIDTH = 240;
const HEIGHT = 48;
const KEPT = 120;

export class Graph {
  constructor(svg) {
    this.values = [];
    this.area = svg.querySelector(".area");
    this.line = svg.querySelector(".line");
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > KEPT) this.values.shift();
    const most = Math.max(1, ...this.values);
    const step = WIDTH / (KEPT - 1);
    const first = WIDTH - (this.values.length - 1) * step;
    const points = this.values.map((each, index) => `${(first + index * step).toFixed(1)} ${(HEIGHT - 2 - (each / most) * (HEIGHT - 6)).toFixed(1)}`);
    this.line.setAttribute("d", `M${points.join("L")}`);
    this.area.setAttribute("d", `M${first.toFixed(1)} ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z`);
  }
}
