// A set of points in space: turned by dragging or with the arrow keys, its critical members marked.

import { el } from "./dom.js";

const START = { yaw: 0.7, pitch: 0.35 };

export class Cloud {
  #points;
  #parts = [];
  #count;
  #marked = new Set();
  #pointed = null;
  #view = { ...START };
  #due = 0;

  /** points: (n, 3). count: so many of those that contribute most are marked. */
  constructor(points, count) {
    this.#points = centred(points);
    this.#count = count;
    this.canvas = el("canvas", { class: "cloud", tabindex: 0, role: "img" });
    this.canvas.addEventListener("pointerdown", (event) => this.canvas.setPointerCapture(event.pointerId));
    this.canvas.addEventListener("pointermove", (event) => event.buttons && this.#turn(event.movementX / 120, event.movementY / 120));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  mark(count) {
    this.#count = count;
    const order = [...this.#parts.keys()].filter((place) => this.#parts[place] > 0).sort((a, b) => this.#parts[b] - this.#parts[a]);
    this.#marked = new Set(order.slice(0, count));
    this.canvas.setAttribute("aria-label",
      `A cloud of ${this.#points.length} points, ${this.#marked.size} of them marked. Turn it with the arrow keys.`);
    this.draw();
  }

  explain(parts) {
    this.#parts = parts;
    this.mark(this.#count);
  }

  point(place) {
    this.#pointed = place;
    this.draw();
  }

  #key(event) {
    const turn = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
    if (event.key === "Home") this.#view = { ...START };
    else if (!turn) return;
    event.preventDefault();
    this.#turn(...(turn ?? [0, 0]));
  }

  #turn(yaw, pitch) {
    this.#view.yaw += yaw;
    this.#view.pitch = Math.max(-1.5, Math.min(1.5, this.#view.pitch + pitch));
    this.canvas.dataset.view = `${this.#view.yaw.toFixed(2)} ${this.#view.pitch.toFixed(2)}`;
    this.draw();
  }

  draw() {
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.#paint();
    });
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const dots = devicePixelRatio || 1;
    this.canvas.width = width * dots;
    this.canvas.height = height * dots;
    const pen = this.canvas.getContext("2d");
    pen.scale(dots, dots);
    const style = getComputedStyle(this.canvas);
    const [plain, strong] = ["--dot", "--warm"].map((name) => style.getPropertyValue(name));
    const { yaw, pitch } = this.#view;
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    const scale = 0.44 * Math.min(width, height);
    const seen = this.#points.map(([x, y, z], place) => {
      const [a, b] = [x * cy - y * sy, x * sy + y * cy]; // z stands up
      const depth = b * cp - z * sp;
      const near = 1 / (1 + 0.28 * depth);
      return { place, x: width / 2 + scale * a * near, y: height / 2 - scale * (z * cp + b * sp) * near, near };
    }).sort((a, b) => a.near - b.near);
    const size = Math.max(1.6, Math.min(4, 52 / Math.sqrt(seen.length)));
    const dot = (point, radius, colour, alpha) => {
      pen.globalAlpha = alpha;
      pen.fillStyle = colour;
      pen.beginPath();
      pen.arc(point.x, point.y, radius * point.near, 0, 7);
      pen.fill();
    };
    for (const point of seen) {
      if (!this.#marked.has(point.place)) dot(point, size, plain, Math.max(0.15, Math.min(1, 1.6 * point.near - 1.05)));
    }
    for (const point of seen) {
      if (this.#marked.has(point.place)) dot(point, 2.1 * size, strong, 0.9);
      if (point.place !== this.#pointed) continue;
      pen.globalAlpha = 1;
      pen.strokeStyle = style.color;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(point.x, point.y, 3.4 * size + 2, 0, 7);
      pen.stroke();
    }
  }
}

/** Around 0, within a ball of radius 1. */
function centred(points) {
  const middle = [0, 1, 2].map((axis) => {
    const values = points.map((point) => point[axis]);
    return (Math.min(...values) + Math.max(...values)) / 2;
  });
  const moved = points.map((point) => point.map((value, axis) => value - middle[axis]));
  const reach = Math.max(...moved.map((point) => Math.hypot(...point))) || 1;
  return moved.map((point) => point.map((value) => value / reach));
}
