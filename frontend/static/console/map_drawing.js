// Draws a map: pictures, dots, labels and lines where the server's layout puts them, on axes with equal scales.

import { h, svg } from "./dom.js";
import { SHAPES, ellipse, ellipseCorners, fitView, gridStep, isInside, moveView, neighbourTowards, project, toScreen, zoomView } from "./map_model.js";

const HTML = "http://www.w3.org/1999/xhtml";
const STEP = 1.25;
const ARRANGE_PAUSE_MS = 60;
const CLICK_PX = 5;
const LINE = 1.2;
const GAP = 4;
const MOST_ARRANGED = 2000; // of more targets in the window, all are dots
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HELP = "Arrow keys move the map, plus and minus zoom, 0 resets the view. The Tab key leads to the targets.";

export class MapDrawing {
  size = 72;
  /** @type {"" | "some" | "all"} Whose uncertainty is drawn: nobody's, that of the targets pointed at and selected, or all. */
  uncertainty = "";
  showsLabels = true;
  isLasso = false;
  /** @type {(index: number | null) => void} */
  onpoint = () => {};
  /** @type {(chosen: Set<number>) => void} */
  onselect = () => {};
  /** @type {(view: object) => void} */
  onview = () => {};
  /** @type {(error: unknown) => void} */
  onfail = () => {};
  #place;
  #targets;
  #arrange;
  #root;
  #layers = {};
  #marks = [];
  /** @type {import("../types").ModelReply | null} */
  #model = null;
  /** @type {[number, number]} */
  #axes = [0, 1];
  #view = null;
  /** @type {(import("../types").LayoutReply & {points: number[][]}) | null} */
  #layout = null;
  #asked = 0;
  #isAsking = false;
  #waiting = null;
  #pointed = null;
  #found = null;
  #chosen = new Set();
  #pointers = new Map();
  #pressed = null;
  #lasso = null;
  #measure = h("canvas").getContext("2d");
  #widths = [];
  #font = 0;

  /**
   * `arrange(body)` asks the server for a layout.
   * @param {HTMLElement} element
   * @param {import("../types").MapTarget[]} targets
   * @param {(body: import("../types").LayoutBody) => Promise<import("../types").LayoutReply>} arrange
   * @param {string} title
   */
  constructor(element, targets, arrange, title) {
    this.#place = element;
    this.#targets = targets;
    this.#arrange = arrange;
    this.#root = svg("svg", { class: "map-drawing", tabindex: "0", role: "group", "aria-label": `${title}. ${HELP}` });
    for (const name of ["grid", "ellipses", "lines", "leaders", "targets", "labels", "lasso"]) {
      this.#layers[name] = svg("g", { class: name });
      this.#root.append(this.#layers[name]);
    }
    for (const name of ["labels", "leaders", "grid", "lasso"]) this.#layers[name].setAttribute("aria-hidden", "true");
    this.#layers.targets.setAttribute("role", "listbox");
    this.#layers.targets.setAttribute("aria-multiselectable", "true");
    this.#layers.targets.setAttribute("aria-label", "Targets. Arrow keys go to the next target in a direction, Space selects.");
    this.#marks = targets.map((target) => this.#mark(target));
    this.#layers.targets.append(...this.#marks.map(({ group }) => group));
    this.#layers.targets.setAttribute("visibility", "hidden"); // until there is an embedding that says where they are
    this.#marks[0]?.group.setAttribute("tabindex", "0");
    element.append(this.#root);
    this.#listen();
    let extent = "";
    new ResizeObserver(() => {
      if (String(this.#extent()) === extent) return;
      extent = String(this.#extent());
      if (this.#view !== null) this.fit();
    }).observe(element);
  }

  get axes() {
    return this.#axes;
  }

  get model() {
    return this.#model;
  }

  get chosen() {
    return this.#chosen;
  }

  /**
   * Show an embedding; the view stays, so that changes are visible.
   * @param {import("../types").ModelReply} model
   * @param {[number, number]} axes
   */
  show(model, axes = this.#axes) {
    const stays = this.#view !== null && String(axes) === String(this.#axes);
    this.#model = model;
    this.#axes = axes;
    this.#layers.targets.removeAttribute("visibility");
    if (stays) this.draw();
    else this.fit();
  }

  fit() {
    if (this.#model === null) return;
    const [width, height] = this.#extent();
    const places = project(this.#model.coordinates, this.#axes);
    const { spread } = this.#model;
    const corners = this.uncertainty && spread ? ellipseCorners(places, spread, this.#axes) : [];
    this.#setView(fitView([...places, ...corners], width, height, 44));
  }

  /** Show the part of the map that another drawing shows. */
  follow(view) {
    if (this.#model === null) return;
    this.#view = view;
    this.draw();
  }

  zoom(closer, at = null) {
    if (this.#model === null) return;
    const [width, height] = this.#extent();
    this.#setView(zoomView(this.#view, closer ? STEP : 1 / STEP, at ?? [width / 2, height / 2], width, height));
  }

  /** Highlight targets whose name contains the words and return them; with `go`, centre the first one. */
  find(words, { go = false } = {}) {
    const wanted = words.trim().toLowerCase();
    const fits = wanted ? this.#targets.filter(({ name }) => name.toLowerCase().includes(wanted)).map(({ index }) => index) : [];
    this.#found = wanted ? new Set(fits) : null;
    if (go && fits.length && this.#model !== null) {
      const [x, y] = project(this.#model.coordinates, this.#axes)[fits[0]];
      this.#setView({ ...this.#view, x, y });
      this.#point(fits[0]);
    }
    this.draw();
    return fits;
  }

  /** Colour targets by group: {names, groups} or null. */
  group(groups) {

    this.#marks.forEach(({ group, dot, badge, frame }, index) => {
      const of = groups ? groups.groups[index] : -1;
      for (const element of [dot, badge]) element.setAttribute("d", SHAPES[Math.max(0, of)]);
      for (const element of [dot, badge, frame]) element.dataset.group = groups ? of : "";
      group.setAttribute("aria-label", this.#targets[index].name + (of >= 0 ? `, ${groups.names[of]}` : ""));
    });
    this.draw();
  }

  /** Select these targets and no others. */
  select(chosen) {
    this.#chosen = new Set(chosen);
    this.#marks.forEach(({ group }, index) => group.setAttribute("aria-selected", String(this.#chosen.has(index))));
    if (this.#model !== null) this.#drawEllipses(this.#places());
  }

  draw() {
    this.#paint();
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.#rearrange(), ARRANGE_PAUSE_MS);
  }

  #setView(view) {
    this.#view = view;
    this.onview(view);
    this.draw();
  }

  #places() {
    const [width, height] = this.#extent();
    return project(this.#model.coordinates, this.#axes).map((point) => toScreen(point, this.#view, width, height));
  }

  /** Ask for the layout of what the window shows now, and draw it. */
  async #rearrange() {
    const [width, height] = this.#extent();
    if (this.#model === null || width < 50) return;
    const asked = (this.#asked += 1);
    if (this.#isAsking) return; // once its layout is here, the newest one is asked for
    this.#isAsking = true;
    const points = this.#places();
    const widths = this.#textWidths();
    const small = width < 560;
    const rounded = (value) => Math.round(10 * value) / 10;
    const seen = points.flatMap(([x, y], index) => (x >= 0 && y >= 0 && x <= width && y <= height ? [index] : []));
    try {
      const layout = seen.length > MOST_ARRANGED ? null : await this.#arrange({
        frame: [width, height],
        points: seen.map((index) => points[index].map(rounded)),
        pictures: seen.map((index) => this.#marks[index].shape()),
        labels: seen.map((index) => (this.showsLabels ? [widths[index] + 2, this.#font * LINE] : [0, 0])),
        smallest: small ? 13 : 20,
        largest: Math.max(small ? 13 : 20, this.size),
        dot: 4,
        gap: GAP,
      });
      if (asked === this.#asked) {
        const marks = points.map(() => null);
        seen.forEach((index, place) => (marks[index] = layout?.marks[place] ?? null));
        this.#layout = layout && { ...layout, marks, points };
        this.#paint();
        this.#root.dataset.arranged = String(asked);
      }
    } catch (error) {
      this.onfail(error);
    } finally {
      this.#isAsking = false;
    }
    if (asked !== this.#asked) this.#rearrange();
  }

  #paint() {
    if (this.#model === null) return;
    const [width, height] = this.#extent();
    this.#root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const points = this.#places();
    this.#drawGrid(width, height);
    const layout = this.#layout;
    const dot = layout?.dot ?? 4;
    const [texts, leaders] = [[], []];
    this.#marks.forEach((mark, index) => {
      const { group } = mark;
      const place = layout?.marks[index] ?? null;
      const point = points[index];
      const isSeen = point && point[0] > -80 && point[1] > -80 && point[0] < width + 80 && point[1] < height + 80;
      group.classList.toggle("away", !isSeen);
      if (!isSeen) return;
      // While a new layout is on its way, everything keeps its place beside its target.
      const [dx, dy] = place ? [point[0] - layout.points[index][0], point[1] - layout.points[index][1]] : [0, 0];
      const [x, y] = place ? [place.centre[0] + dx, place.centre[1] + dy] : point;
      group.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
      mark.draw(place?.picture ? layout.side : 0, dot);
      group.classList.toggle("faded", this.#isFaded(index));
      if (place?.picture && Math.hypot(x - point[0], y - point[1]) > Math.max(2, 0.15 * layout.side)) {
        leaders.push(svg("line", { class: "moved", x1: point[0], y1: point[1], x2: x, y2: y }), svg("circle", { cx: point[0], cy: point[1], r: 1.6 }));
      }
      if (place?.leader) {
        const [x1, y1, x2, y2] = place.leader;
        leaders.push(svg("line", { x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy }));
      }
      if (place?.label) {
        const font = this.#font * layout.font;
        const text = svg("text", { x: place.label[0] + dx + 1, y: place.label[1] + dy + 0.94 * font, "font-size": font }, this.#labelOf(index));
        text.classList.toggle("faded", this.#isFaded(index));
        text.dataset.index = index;
        texts.push(text);
      }
    });
    this.#layers.leaders.replaceChildren(...leaders);
    this.#layers.labels.replaceChildren(...texts);
    this.#drawEllipses(points);
    this.#drawNearest(points);
  }

  #labelOf(index) {
    const { name } = this.#targets[index];
    return name.length > 28 ? `${name.slice(0, 27)}…` : name;
  }

  #textWidths() {
    const [width] = this.#extent();
    const font = width > 2400 ? 16 : 12;
    if (font !== this.#font) {
      this.#font = font;
      this.#measure.font = `${font}px ${getComputedStyle(this.#root).fontFamily}`;
      this.#widths = this.#targets.map((_, index) => this.#measure.measureText(this.#labelOf(index)).width);
    }
    return this.#widths;
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
    const dot = svg("path", { class: "dot", d: SHAPES[0] });
    const badge = svg("path", { class: "badge", d: SHAPES[0] });
    const card = svg("rect", { class: "card" });
    const frame = svg("rect", { class: "frame" });
    const { element, shape } = drawTarget(target);
    const picture = svg("g", {}, card, element, frame, badge);
    const group = svg("g", { class: "mark", tabindex: "-1", role: "option", "aria-selected": "false", "aria-label": target.name }, dot, picture);
    group.dataset.index = target.index;
    const draw = (side, radius) => {
      dot.setAttribute("visibility", side ? "hidden" : "inherit");
      picture.setAttribute("visibility", side ? "inherit" : "hidden");
      dot.setAttribute("transform", `scale(${radius})`);
      if (!side) return;
      const [width, height] = shape().map((share) => side * share);
      for (const box of [card, frame]) setBox(box, width, height);
      if (element) sizeTarget(element, width, height);
      const small = 0.13 * Math.min(width, height);
      badge.setAttribute("transform", `translate(${-width / 2} ${-height / 2}) scale(${Math.max(2.5, small)})`);
    };
    group.addEventListener("pointerenter", () => this.#point(target.index));
    group.addEventListener("pointerleave", () => this.#point(null));
    group.addEventListener("focus", () => {
      this.#keepInView(target.index);
      this.#point(target.index);
    });
    group.addEventListener("blur", () => this.#point(null));
    group.addEventListener("keydown", (event) => this.#keyOnMark(event, target.index));
    return { group, dot, badge, frame, shape, draw };
  }

  #point(index) {
    if (this.#pointed === index || this.#pointers.size > 0) return;
    this.#pointed = index;
    this.onpoint(index);
    this.#paint();
  }

  /** Focus a target; it becomes the one that the Tab key leads to. */
  #focus(index) {
    for (const { group } of this.#marks) group.setAttribute("tabindex", "-1");
    this.#marks[index].group.setAttribute("tabindex", "0");
    this.#marks[index].group.focus();
  }

  #keepInView(index) {
    const [width, height] = this.#extent();
    const point = this.#model && this.#places()[index];
    if (!point || (point[0] > 0 && point[1] > 0 && point[0] < width && point[1] < height)) return;
    const [x, y] = project(this.#model.coordinates, this.#axes)[index];
    this.#setView({ ...this.#view, x, y });
  }

  #toggle(index) {
    const chosen = new Set(this.#chosen);
    if (!chosen.delete(index)) chosen.add(index);
    this.onselect(chosen);
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
    const isShown = (index) => this.uncertainty === "all" || index === this.#pointed || this.#chosen.has(index);
    const drawn = this.uncertainty && spread ? spread.map((_, index) => index).filter(isShown) : [];
    this.#layers.ellipses.replaceChildren(
      ...drawn.map((index) => {
        const { long, short, angle } = ellipse(spread[index], this.#axes);
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
      this.#pressed = { index: event.target.closest?.(".mark")?.dataset.index, at: at(event), adds: event.shiftKey || event.ctrlKey || event.metaKey };
      if (this.isLasso && this.#pointers.size === 0) this.#lasso = [at(event)];
      this.#pointers.set(event.pointerId, at(event));
    });
    root.addEventListener("pointermove", (event) => {
      const before = this.#pointers.get(event.pointerId);
      if (!before) return;
      const now = at(event);
      const others = [...this.#pointers].filter(([id]) => id !== event.pointerId);
      this.#pointers.set(event.pointerId, now);
      if (this.#lasso) {
        this.#lasso.push(now);
        this.#layers.lasso.replaceChildren(svg("polygon", { points: this.#lasso.map((point) => point.join(",")).join(" ") }));
      } else if (others.length === 0) this.#setView(moveView(this.#view, now[0] - before[0], now[1] - before[1]));
      else this.#pinch(before, now, others[0][1]);
    });
    for (const type of ["pointerup", "pointercancel"]) {
      root.addEventListener(type, (event) => {
        if (!this.#pointers.delete(event.pointerId)) return;
        if (type === "pointerup") this.#release(at(event));
        this.#lasso = null;
        this.#layers.lasso.replaceChildren();
      });
    }
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  #release(now) {
    const isClick = this.#pressed && Math.hypot(now[0] - this.#pressed.at[0], now[1] - this.#pressed.at[1]) < CLICK_PX;
    if (isClick && this.#pressed.index !== undefined) {
      const index = Number(this.#pressed.index);
      this.#focus(index);
      if (this.#pressed.adds || this.isLasso) this.#toggle(index);
    } else if (this.#lasso && this.#lasso.length > 2) {
      const inside = this.#places().flatMap((point, index) => {
        const place = this.#layout?.marks[index];
        return isInside(place?.picture ? place.centre : point, this.#lasso) ? [index] : [];
      });
      this.onselect(new Set(this.#pressed.adds ? [...this.#chosen, ...inside] : inside));
    }
  }

  #pinch(before, now, other) {
    const apart = ([x, y]) => Math.max(1, Math.hypot(x - other[0], y - other[1]));
    const [width, height] = this.#extent();
    this.#setView(zoomView(this.#view, apart(now) / apart(before), other, width, height));
  }

  #keyOnMark(event, index) {
    const last = this.#targets.length - 1;
    if (event.key in DIRECTIONS) this.#focus(neighbourTowards(this.#places(), index, DIRECTIONS[event.key]));
    else if (event.key === "Home") this.#focus(0);
    else if (event.key === "End") this.#focus(last);
    else if (event.key === " " || event.key === "Enter") this.#toggle(index);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #key(event) {
    if (this.#model === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in DIRECTIONS) {
      const [dx, dy] = DIRECTIONS[event.key];
      this.#setView(moveView(this.#view, -40 * dx, -40 * dy));
    } else if (event.key === "+" || event.key === "=") this.zoom(true);
    else if (event.key === "-") this.zoom(false);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}

/** Return {element, shape}: what shows a target (null for a dot) and its width and height with a longer side of 1. */
function drawTarget(target) {
  if (target.kind === "image") {
    const wide = target.width && target.height ? Math.min(1, target.width / target.height) : 1;
    const high = target.width && target.height ? Math.min(1, target.height / target.width) : 1;
    return { element: svg("image", { href: target.media, preserveAspectRatio: "xMidYMid meet" }), shape: () => [wide, high] };
  }
  if (target.kind !== "html") return { element: null, shape: () => [0, 0] };
  // The server has cleaned this HTML; it is scaled once it has been laid out.
  const box = document.createElementNS(HTML, "div");
  box.innerHTML = target.html;
  box.setAttribute("style", "display:inline-block;transform-origin:0 0");
  const element = svg("foreignObject", { overflow: "visible", width: 1, height: 1 }, box);
  return {
    element,
    shape: () => {
      const [width, height] = [Math.max(1, box.offsetWidth), Math.max(1, box.offsetHeight)];
      return [width / Math.max(width, height), height / Math.max(width, height)];
    },
  };
}

function sizeTarget(element, width, height) {
  setBox(element, width, height);
  const box = element.firstElementChild;
  if (box) box.style.transform = `scale(${Math.max(width, height) / Math.max(1, box.offsetWidth, box.offsetHeight)})`;
}

function setBox(element, width, height) {
  for (const [name, value] of Object.entries({ x: -width / 2, y: -height / 2, width, height })) element.setAttribute(name, value.toFixed(2));
}
