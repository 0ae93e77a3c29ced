// A figure: a title, a sentence that explains it, a chart, and its data as a table and as files.

import * as echarts from "../vendor/echarts-6.1.0.esm.min.js";

import { h, save } from "./dom.js";

const PNG_SCALE = 3; // about 300 dpi at the width of a printed column

/** Return the current colours of the page, light or dark; colours of data are safe for colour-blind readers. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  return {
    ink: named("--ink"),
    quiet: named("--quiet"),
    line: named("--line"),
    background: named("--background"),
    first: named("--data-1"),
    second: named("--data-2"),
    third: named("--data-3"),
  };
}

export class Figure {
  #chart = null;
  #place = h("div", { class: "chart", role: "img", hidden: true });
  #empty = h("p", { class: "empty-chart" });
  #table = h("div", { class: "scroll", tabindex: "0", role: "region" });
  #details = h("details", { class: "figure-data" }, h("summary", {}, "Data"), this.#table);
  #option;
  #rows;
  #shown = null;

  /** `option(data, colours)` returns the chart, `rows(data)` its table, whose first row holds the column names. */
  constructor({ name, title, sentence, option, rows, emptyText, height = 260 }) {
    this.#option = option;
    this.#rows = rows;
    this.#place.style.height = `${height}px`;
    this.#place.setAttribute("aria-label", `${title}. ${sentence}`);
    this.#table.setAttribute("aria-label", title);
    this.#empty.textContent = emptyText;
    const button = (label, work) => h("button", { type: "button", class: "plain", onclick: work, "aria-label": `${title} as ${label}` }, label);
    this.element = h(
      "figure",
      { class: "card", "data-figure": name },
      h("figcaption", {}, h("h2", {}, title), h("p", { class: "quiet" }, sentence)),
      this.#place,
      this.#empty,
      h(
        "div",
        { class: "figure-tools" },
        button("SVG", () => save(`${name}.svg`, this.svg(), "image/svg+xml")),
        button("PNG", async () => save(`${name}.png`, await this.png())),
        button("CSV", () => save(`${name}.csv`, this.csv(), "text/csv")),
      ),
      this.#details,
    );
    this.#details.addEventListener("toggle", () => this.#fillTable());
    new ResizeObserver(() => this.#chart?.resize()).observe(this.#place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  show(data) {
    this.#shown = data;
    this.#draw();
    if (this.#details.open) this.#fillTable();
  }

  svg() {
    return this.#chart?.renderToSVGString() ?? "";
  }

  async png() {
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(this.svg())}`;
    await picture.decode();
    const canvas = h("canvas", { width: PNG_SCALE * this.#place.clientWidth, height: PNG_SCALE * this.#place.clientHeight });
    const context = canvas.getContext("2d");
    context.fillStyle = colours().background;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  csv() {
    const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    return this.#rows(this.#shown).map((row) => row.map((value) => quoted(`${value ?? ""}`)).join(",")).join("\r\n") + "\r\n";
  }

  #draw() {
    const drawn = this.#shown === null ? null : this.#option(this.#shown, colours());
    this.#place.hidden = drawn === null;
    this.#empty.hidden = drawn !== null;
    if (drawn === null) return;
    this.#chart ??= echarts.init(this.#place, null, { renderer: "svg" });
    const { ink, line } = colours();
    this.#chart.setOption({ animation: false, textStyle: { color: ink, fontFamily: "system-ui, sans-serif" }, ...withAxes(drawn, ink, line) }, true);
  }

  #fillTable() {
    if (!this.#details.open || this.#shown === null) return;
    const [names, ...rows] = this.#rows(this.#shown);
    this.#table.replaceChildren(
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col", class: "number" }, name)))),
        h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value) => h("td", { class: "number" }, `${value ?? ""}`))))),
      ),
    );
  }
}

/** Add axes and a tooltip in the colours of the page. */
function withAxes(option, ink, line) {
  const axis = (given) => ({
    nameLocation: "middle",
    nameTextStyle: { color: ink },
    axisLabel: { color: ink, hideOverlap: true, ...given.axisLabel },
    axisLine: { lineStyle: { color: line } },
    splitLine: { lineStyle: { color: line } },
    ...omit(given, "axisLabel"),
  });
  return {
    grid: { left: 56, right: 24, top: 28, bottom: 48 },
    tooltip: { trigger: "axis", confine: true },
    ...option,
    xAxis: [option.xAxis].flat().map(axis),
    yAxis: [option.yAxis].flat().map(axis),
  };
}

const omit = (object, name) => Object.fromEntries(Object.entries(object).filter(([key]) => key !== name));
