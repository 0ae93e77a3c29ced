// Draws the map: targets at their positions, axes with equal scales, and a grid.

import { h, svg } from "./dom.js";
import { ellipse, fitView, gridStep, moveView, placeLabels, project, toScreen, zoomView } from "./map_model.js";

const HTML = "http://www.w3.org/1999/xhtml";
const STEP = 1.25;
const LABEL_FONT = "12px system-ui, sans-serif";

export class MapDrawing {
  size = 56;
  showsEllipses = false;
  showsLabels = false;
  onpoint = () => {};
  #place;
  #targets;
  #root;
  #layers = {};
  #marks = [];
  #model = null;
  #axes = [0, 1];
  #view = null;
  #pointed = null;
  #found = null;
  #pointers = new Map();
  #measure = h("canvas").getContext("2d");

  constructor(element, targets) {
    this.#place = element;
    this.#targets = targets;
    this.#measure.font = LABEL_FONT;
    this.#root = svg("svg", { class: "map-drawing", tabindex: "0", role: "group", "aria-label": "Map of the targets. Arrow keys move it, plus and minus zoom, 0 resets the view." });
    for (const name of ["grid", "ellipses", "lines", "targets", "labels"]) {
      this.#layers[name] = svg("g", { class: name });
      this.#root.append(this.#layers[name]);
    }
    this.#marks = targets.map((target) => this.#mark(target));
    this.#layers.targets.append(...this.#marks.map(({ group }) => group));
    element.append(this.#root);
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(element);
  }

  get axes() {
    return this.#axes;
  }

  /** Show an embedding {coordinates, spread, nearest}; the view stays, so that changes are visible. */
  show(model, axes = this.#axes) {
    const fits = this.#view !== null && String(axes) === String(this.#axes);
    this.#model = model;
    this.#axes = axes;
    if (!fits) this.fit();
    else this.draw();
  }

  fit() {
    if (this.#model === null) return;
    const [width, height] = this.#extent();
    this.#view = fitView(project(this.#model.coordinates, this.#axes), width, height, this.size + 24);
    this.draw();
  }

  zoom(closer, at = null) {
    const [width, height] = this.#extent();
    this.#view = zoomView(this.#view, closer ? STEP : 1 / STEP, at ?? [width / 2, height / 2], width, height);
    this.draw();
  }

  /** Highlight targets whose name contains the words; with `go`, centre the first one. */
  find(words, { go = false } = {}) {
    const wanted = words.trim().toLowerCase();
    const fits = this.#targets.filter(({ name }) => name.toLowerCase().includes(wanted)).map(({ index }) => index);
    this.#found = wanted ? new Set(fits) : null;
    if (go && fits.length) {
      const [x, y] = project(this.#model.coordinates, this.#axes)[fits[0]];
      this.#view = { ...this.#view, x, y };
      this.#point(fits[0]);
    }
    this.draw();
  }

  draw() {
    if (this.#model === null) return;
    const [width, height] = this.#extent();
    this.#root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const points = project(this.#model.coordinates, this.#axes).map((point) => toScreen(point, this.#view, width, height));
    this.#drawGrid(width, height);
    this.#marks.forEach(({ group, resize }, index) => {
      const known = index < points.length;
      group.setAttribute("visibility", known ? "visible" : "hidden");
      if (!known) return;
      group.setAttribute("transform", `translate(${points[index].map((value) => value.toFixed(2)).join(" ")})`);
      resize(this.size);
      group.classList.toggle("faded", this.#isFaded(index));
    });
    this.#drawEllipses(points);
    this.#drawNearest(points);
    this.#drawLabels(points);
  }

  /** Return the drawing as a self-contained SVG on white. */
  async file() {
    const copy = this.#root.cloneNode(true);
    const [width, height] = this.#extent();
    for (const [name, value] of Object.entries({ width, height, xmlns: "http://www.w3.org/2000/svg" })) copy.setAttribute(name, value);
    for (const name of ["tabindex", "role", "aria-label", "class"]) copy.removeAttribute(name);
    copy.querySelector(".lines").replaceChildren();
    for (const element of copy.querySelectorAll("[tabindex]")) element.removeAttribute("tabindex");
    copy.querySelectorAll(".faded").forEach((element) => element.classList.remove("faded"));
    copy.prepend(svg("style", {}, STYLE), svg("rect", { width, height, fill: "#fff" }));
    await Promise.all([...copy.querySelectorAll("image")].map(embedImage));
    return new XMLSerializer().serializeToString(copy);
  }

  async png(scale = 3) {
    const [width, height] = this.#extent();
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(await this.file())}`;
    await picture.decode();
    const canvas = h("canvas", { width: scale * width, height: scale * height });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  #extent() {
    return [Math.max(1, this.#place.clientWidth), Math.max(1, this.#place.clientHeight)];
  }

  #isFaded(index) {
    if (this.#found !== null) return !this.#found.has(index);
    if (this.#pointed === null) return false;
    return index !== this.#pointed && !this.#model.nearest[this.#pointed]?.includes(index);
  }

  #mark(target) {
    const group = svg("g", { class: "mark", tabindex: "0", role: "img", "aria-label": target.name });
    const resize = drawTarget(target, group);
    group.addEventListener("pointerenter", () => this.#point(target.index));
    group.addEventListener("pointerleave", () => this.#point(null));
    group.addEventListener("focus", () => this.#point(target.index));
    group.addEventListener("blur", () => this.#point(null));
    return { group, resize };
  }

  #point(index) {
    if (this.#pointed === index || this.#pointers.size > 0) return;
    this.#pointed = index;
    // The last element is drawn on top. An element with the focus is not moved, because it would lose the focus.
    const group = index === null ? null : this.#marks[index].group;
    if (group !== null && group !== document.activeElement) this.#layers.targets.append(group);
    this.onpoint(index);
    this.draw();
  }

  #drawGrid(width, height) {
    const step = gridStep(this.#view.scale) * this.#view.scale;
    const [x0, y0] = toScreen([0, 0], this.#view, width, height);
    const lines = [];
    for (let x = ((x0 % step) + step) % step; x < width; x += step) lines.push(svg("line", { x1: x, x2: x, y1: 0, y2: height }));
    for (let y = ((y0 % step) + step) % step; y < height; y += step) lines.push(svg("line", { x1: 0, x2: width, y1: y, y2: y }));
    this.#layers.grid.replaceChildren(...lines);
  }

  #drawEllipses(points) {
    const { spread } = this.#model;
    const shown = this.showsEllipses && spread ? spread.map((covariance) => ellipse(covariance, this.#axes)) : [];
    this.#layers.ellipses.replaceChildren(
      ...shown.map(({ long, short, angle }, index) => {
        const [x, y] = points[index];
        const transform = `translate(${x.toFixed(2)} ${y.toFixed(2)}) rotate(${angle.toFixed(1)})`;
        return svg("ellipse", { rx: long * this.#view.scale, ry: Math.max(1, short * this.#view.scale), transform });
      }),
    );
  }

  #drawNearest(points) {
    const near = this.#pointed === null ? [] : (this.#model.nearest[this.#pointed] ?? []);
    const [x1, y1] = this.#pointed === null ? [0, 0] : points[this.#pointed];
    this.#layers.lines.replaceChildren(...near.map((index) => svg("line", { x1, y1, x2: points[index][0], y2: points[index][1] })));
  }

  #drawLabels(points) {
    if (!this.showsLabels) {
      this.#layers.labels.replaceChildren();
      return;
    }
    const pictured = this.#targets.slice(0, points.length).filter(({ kind }) => kind !== "text");
    const labels = pictured.map((target) => ({
      x: points[target.index][0],
      y: points[target.index][1],
      width: this.#measure.measureText(target.name).width,
      half: this.size / 2,
    }));
    const texts = placeLabels(labels).map((at, index) => at && svg("text", { x: at[0], y: at[1] }, pictured[index].name));
    this.#layers.labels.replaceChildren(...texts.filter(Boolean));
  }

  #listen() {
    const root = this.#root;
    const at = (event) => {
      const box = root.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    root.addEventListener("wheel", (event) => {
      if (this.#model === null) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0, at(event));
    }, { passive: false });
    root.addEventListener("pointerdown", (event) => {
      if (this.#model === null) return;
      root.setPointerCapture(event.pointerId);
      this.#pointers.set(event.pointerId, at(event));
    });
    root.addEventListener("pointermove", (event) => {
      const before = this.#pointers.get(event.pointerId);
      if (!before) return;
      const now = at(event);
      if (this.#pointers.size === 1) this.#view = moveView(this.#view, now[0] - before[0], now[1] - before[1]);
      else this.#pinch(event.pointerId, before, now);
      this.#pointers.set(event.pointerId, now);
      this.draw();
    });
    for (const name of ["pointerup", "pointercancel"]) root.addEventListener(name, (event) => this.#pointers.delete(event.pointerId));
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  #pinch(pointer, before, now) {
    const [, other] = [...this.#pointers].find(([id]) => id !== pointer);
    const apart = ([x, y]) => Math.max(1, Math.hypot(x - other[0], y - other[1]));
    const [width, height] = this.#extent();
    this.#view = zoomView(this.#view, apart(now) / apart(before), other, width, height);
  }

  #key(event) {
    if (this.#model === null) return;
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    if (event.key in moves) this.#view = moveView(this.#view, ...moves[event.key]);
    else if (event.key === "+" || event.key === "=") return this.zoom(true);
    else if (event.key === "-") return this.zoom(false);
    else if (event.key === "0") return this.fit();
    else return undefined;
    event.preventDefault();
    this.draw();
    return undefined;
  }
}

const STYLE = `
  .grid line { stroke: #e8e8e8; stroke-width: 1 }
  .ellipses ellipse { fill: #0072b2; fill-opacity: .1; stroke: #0072b2; stroke-opacity: .55; stroke-width: 1 }
  text { font: 12px system-ui, Helvetica, Arial, sans-serif; text-anchor: middle; fill: #1c1c1c }
  .mark text { font-size: 14px }
  .dot { fill: #0072b2 }
`;

/** Draw a target in a group; return a function that changes its size. */
function drawTarget(target, group) {
  if (target.kind === "image") {
    const wide = target.width && target.height ? Math.min(1, target.width / target.height) : 1;
    const high = target.width && target.height ? Math.min(1, target.height / target.width) : 1;
    const image = svg("image", { href: target.media, preserveAspectRatio: "xMidYMid meet" });
    group.append(image);
    return (size) => setBox(image, size * wide, size * high);
  }
  if (target.kind === "text") {
    const text = svg("text", { "dominant-baseline": "central" }, target.html);
    group.append(text);
    return () => {};
  }
  if (target.kind === "html") return drawHtml(target, group);
  group.append(svg("circle", { class: "dot", r: 6 }), svg("text", { y: 22 }, target.name)); // sound and video
  return () => {};
}

/** Draw HTML that the server has cleaned; it is scaled once it has been laid out. */
function drawHtml(target, group) {
  const box = document.createElementNS(HTML, "div");
  box.innerHTML = target.html;
  box.setAttribute("style", "display:inline-block;transform-origin:0 0");
  const frame = svg("foreignObject", { overflow: "visible" }, box);
  group.append(frame);
  return (size) => {
    const [width, height] = [Math.max(1, box.offsetWidth), Math.max(1, box.offsetHeight)];
    const factor = size / Math.max(width, height);
    box.style.transform = `scale(${factor})`;
    setBox(frame, width * factor, height * factor);
  };
}

function setBox(element, width, height) {
  for (const [name, value] of Object.entries({ x: -width / 2, y: -height / 2, width, height })) element.setAttribute(name, value.toFixed(2));
}

/** Replace the address of a picture by its content. */
async function embedImage(image) {
  const reply = await fetch(image.getAttribute("href"));
  const content = await reply.blob();
  const reader = new FileReader();
  const address = await new Promise((resolve) => {
    reader.addEventListener("load", () => resolve(reader.result));
    reader.readAsDataURL(content);
  });
  image.setAttribute("href", address);
}
