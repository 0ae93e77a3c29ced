// Tables that can be sorted, filtered, copied and saved as CSV.

import { copy, count, h, number, save } from "./dom.js";

// Rows drawn at first, because browsers are slow to lay out ten thousand rows.
const DRAWN_ROWS = 300;

/**
 * @template Row
 * @typedef {{name: string, label: string, value: (row: Row) => any, show?: (row: Row) => any, number?: boolean, help?: string}} Column
 */

/**
 * `columns` are {name, label, value(row), show?(row), number?, help?}: `value` is sorted, filtered and saved, `show` is
 * displayed. Rows are in the order of the column `sorted`, or keep theirs, until the user sorts them. With `select`, each
 * row has a box to tick; it is called with the keys of the rows that are ticked.
 * @template Row
 */
export class Table {
  #columns;
  /** @type {Row[]} */
  #rows = [];
  #sorted = { name: null, down: false };
  #words = "";
  #body = h("tbody");
  #count = h("span", { class: "quiet", role: "status" });
  #head;
  #key;
  #limit = DRAWN_ROWS;
  #select;
  #selected = new Set();
  #more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => this.#drawMore() });

  /**
   * @param {Column<Row>[]} columns
   * @param {{name: string, label: string, key?: (row: Row, place: number) => any, searchable?: boolean, sorted?: string, select?: (keys: any[]) => void}} options
   */
  constructor(columns, { name, label, key = (row, place) => place, searchable = true, sorted = null, select = null }) {
    this.#columns = columns;
    this.#key = key;
    this.#select = select;
    if (sorted) this.#sorted = { name: sorted, down: false };
    this.#head = h("tr", {}, ...columns.map((column) => this.#heading(column)));
    this.#markSorted();
    const search = h("input", {
      type: "search",
      "aria-label": `Filter ${label.toLowerCase()}`,
      placeholder: "Filter",
      oninput: (event) => {
        this.#words = event.target.value.toLowerCase();
        this.#draw();
      },
    });
    const tools = h(
      "div",
      { class: "table-tools" },
      searchable ? search : null,
      this.#count,
      h("span", { class: "spring" }),
      h("button", { type: "button", class: "plain", onclick: (event) => copy(event.target, this.#text("\t")) }, "Copy"),
      h("button", { type: "button", class: "plain", onclick: () => save(`${name}.csv`, this.#text(","), "text/csv") }, "CSV"),
    );
    this.element = h(
      "div",
      { class: "table" },
      tools,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label} table` },
        h("table", {}, h("thead", {}, this.#head), this.#body),
      ),
      this.#more,
    );
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.#rows = rows;
    this.#draw();
  }

  #heading(column) {
    const button = h("button", { type: "button", title: column.help, onclick: () => this.#sortBy(column.name) }, column.label);
    return h("th", { scope: "col", class: column.number ? "number" : null, "data-name": column.name }, button);
  }

  #sortBy(name) {
    const same = this.#sorted.name === name;
    this.#sorted = { name, down: same ? !this.#sorted.down : false };
    this.#markSorted();
    this.#draw();
  }

  #markSorted() {
    for (const cell of this.#head.children) {
      if (cell.dataset.name === this.#sorted.name) cell.setAttribute("aria-sort", this.#sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  /** Tick exactly the rows of these keys. */
  choose(keys) {
    this.#selected = new Set(keys);
    this.#draw();
    this.#select?.([...this.#selected]);
  }

  #box(key, name) {
    return h("input", {
      type: "checkbox",
      "aria-label": `Select ${name}`,
      checked: this.#selected.has(key),
      onchange: (event) => {
        if (event.target.checked) this.#selected.add(key);
        else this.#selected.delete(key);
        this.#select([...this.#selected]);
      },
    });
  }

  #shown() {
    const words = this.#words.split(/\s+/).filter(Boolean);
    const fits = (row) => {
      const text = this.#columns.map((column) => column.value(row) ?? "").join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const rows = words.length ? this.#rows.filter(fits) : [...this.#rows];
    const column = this.#columns.find(({ name }) => name === this.#sorted.name);
    if (!column) return rows;
    const sign = this.#sorted.down ? -1 : 1;
    return rows.sort((a, b) => sign * compare(column.value(a), column.value(b)));
  }

  #drawMore() {
    this.#limit *= 4;
    this.#draw();
  }

  #draw() {
    const found = this.#shown();
    const rows = found.slice(0, this.#limit);
    this.#more.hidden = rows.length === found.length;
    this.#more.textContent = `Show more rows (first ${number(rows.length)} shown)`;
    this.#count.textContent = found.length === this.#rows.length ? count(found.length, "row") : `${number(found.length)} of ${count(this.#rows.length, "row")}`;
    const focused = /** @type {HTMLElement} */ (document.activeElement?.closest("tr[data-key]"))?.dataset.key;
    this.#body.replaceChildren(
      ...rows.map((row, place) =>
        h(
          "tr",
          { "data-key": this.#key(row, place) },
          ...this.#columns.map((column, position) => {
            const shown = column.show ? column.show(row) : (column.value(row) ?? "");
            const attributes = { class: column.number ? "number" : null };
            if (position > 0) return h("td", attributes, shown);
            const box = this.#select ? this.#box(this.#key(row, place), column.value(row)) : null;
            return h("th", { scope: "row", ...attributes }, box, shown);
          }),
        ),
      ),
    );
    if (focused) /** @type {HTMLElement} */ (this.#body.querySelector(`tr[data-key="${CSS.escape(focused)}"] button`))?.focus();
  }

  #text(separator) {
    const quoted = (value) => (separator === "," && /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const line = (values) => values.map((value) => quoted(String(value ?? ""))).join(separator);
    const rows = this.#shown().map((row) => line(this.#columns.map((column) => column.value(row))));
    return [line(this.#columns.map(({ name }) => name)), ...rows].join("\r\n") + "\r\n";
  }
}

function compare(a, b) {
  const isEmpty = (value) => value === null || value === undefined || value === "";
  if (isEmpty(a) || isEmpty(b)) return Number(isEmpty(a)) - Number(isEmpty(b));
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** Make a table of the page sortable; data-value of a cell, if present, is its value. */
export function makeSortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = h("button", { type: "button" }, ...cell.childNodes);
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => {
        const own = row.cells[column];
        return own.dataset.value === undefined ? own.textContent.trim() : Number(own.dataset.value);
      };
      body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b))));
    });
  });
}
