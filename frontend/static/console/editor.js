// A text area with line numbers that marks problems at their lines.

import { h } from "./dom.js";

export class Editor {
  #text;
  #gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  #marks = h("div", { class: "marks", "aria-hidden": "true" });
  #problems = [];

  constructor(place, { value = "", label, oninput }) {
    this.#text = h("textarea", {
      "aria-label": label,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      wrap: "off",
      rows: "22",
    });
    this.#text.value = value;
    this.#text.addEventListener("input", () => {
      this.#draw();
      oninput(this.value);
    });
    this.#text.addEventListener("scroll", () => this.#follow());
    this.#text.addEventListener("keydown", (event) => this.#indent(event));
    place.append(h("div", { class: "editor" }, this.#gutter, h("div", { class: "sheet" }, this.#marks, this.#text)));
    this.#draw();
  }

  get value() {
    return this.#text.value;
  }

  set value(text) {
    this.#text.value = text;
    this.#problems = [];
    this.#draw();
  }

  /** Mark the lines of problems {line, column, sentence, warning}. */
  mark(problems) {
    this.#problems = problems;
    this.#text.setAttribute("aria-invalid", String(problems.some(({ warning }) => !warning)));
    this.#draw();
  }

  /** Move the caret to a line and column. */
  goTo(line, column) {
    const lines = this.#text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + Math.max(0, column - 1);
    this.#text.focus();
    this.#text.setSelectionRange(start, start);
    this.#text.scrollTop = Math.max(0, (line - 6) * this.#lineHeight());
  }

  // Ctrl+] inserts two spaces; Tab moves to the next element, as everywhere.
  #indent(event) {
    if (event.key !== "]" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#text.setRangeText("  ", this.#text.selectionStart, this.#text.selectionEnd, "end");
    this.#text.dispatchEvent(new Event("input"));
  }

  #lineHeight() {
    return parseFloat(getComputedStyle(this.#text).lineHeight);
  }

  #draw() {
    const count = this.#text.value.split("\n").length;
    const worst = new Map();
    for (const { line, warning } of this.#problems) {
      if (line > 0) worst.set(line, worst.get(line) === "error" || !warning ? "error" : "warning");
    }
    const numbers = [];
    const stripes = [];
    for (let line = 1; line <= count; line += 1) {
      const kind = worst.get(line);
      numbers.push(h("span", { class: kind ?? null }, kind ? `${kind === "error" ? "✕" : "!"} ${line}` : `${line}`));
      stripes.push(h("span", { class: kind ?? null }));
    }
    this.#gutter.replaceChildren(...numbers);
    this.#marks.replaceChildren(...stripes);
    this.#follow();
  }

  #follow() {
    this.#gutter.scrollTop = this.#text.scrollTop;
    this.#marks.style.transform = `translateY(${-this.#text.scrollTop}px)`;
  }
}
