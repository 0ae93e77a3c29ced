// Shows everything that is not a trial, one screen at a time: a heading, text, forms and buttons.

const byId = (id) => document.getElementById(id);

/** Create an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "form") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Create a paragraph of plain text. */
export const paragraph = (text) => make("p", { textContent: text });

/** Create an element from HTML that the server has cleaned. */
export const prose = (html) => make("div", { className: "prose", innerHTML: html });

export class Screens {
  #strings;
  #section = byId("message");
  #files = { all: 0, done: 0 };

  constructor(strings) {
    this.#strings = strings;
  }

  /**
   * Show a screen and resolve with the name of the button that was pressed.
   * `actions` maps names to {label, check}; the screen stays while `check()` is false.
   */
  show({ heading = "", parts = [], actions = {} }) {
    const title = make("h2", { tabIndex: -1, textContent: heading });
    const buttons = make("div", { className: "buttons" });
    const shown = new Promise((resolve) => {
      Object.entries(actions).forEach(([name, { label, check = () => true }], place) => {
        const button = make("button", { className: place === 0 ? "first" : "", textContent: label, type: "button" });
        button.addEventListener("click", () => {
          if (!check()) return;
          for (const each of buttons.children) each.disabled = true; // the next screen may take a moment
          resolve(name);
        });
        buttons.append(button);
      });
    });
    this.#section.replaceChildren(...(heading ? [title] : []), ...parts, ...(buttons.children.length > 0 ? [buttons] : []));
    byId("trial").hidden = true;
    this.#section.hidden = false;
    scrollTo(0, 0);
    (heading ? title : this.#section).focus();
    return shown;
  }

  /** Show a screen with one button. */
  next(heading, parts, label = "continue") {
    return this.show({ actions: { [label]: { label: this.#strings.say(label) } }, heading, parts });
  }

  /** Update how many files are loaded. */
  loading(done, all) {
    this.#files = { all, done };
    const bar = /** @type {HTMLProgressElement} */ (byId("loading-bar"));
    if (!bar) return;
    bar.value = done / all;
    byId("loading").textContent = this.#strings.say("loading_files", this.#files);
  }

  /** Show the progress of loading, unless all files are loaded. */
  waitForFiles() {
    const { all, done } = this.#files;
    if (done >= all) return;
    const bar = make("progress", { "aria-labelledby": "loading", id: "loading-bar", max: 1 });
    this.show({ heading: this.#strings.say("loading"), parts: [make("p", { id: "loading" }), bar] });
    this.loading(done, all);
  }

  /**
   * Show a line below the screen; with `instead`, only if it replaces that line.
   * @param {string} text
   * @param {{instead?: string}} options
   */
  status(text, { instead } = {}) {
    const line = byId("status");
    if (line.textContent !== text && (instead === undefined || line.textContent === instead)) line.textContent = text;
  }

  progress(given, limit) {
    const bar = /** @type {HTMLProgressElement} */ (byId("progress"));
    bar.hidden = limit <= 0;
    bar.value = limit > 0 ? given / limit : 0;
    byId("num-queries").textContent = limit > 0 ? `${given} / ${limit}` : `${given}`;
  }

  participant(code) {
    byId("puid").textContent = code;
    byId("participant").hidden = false;
  }

  /** Create a button that copies a text and confirms it. */
  copyButton(label, text) {
    const button = make("button", { textContent: label, type: "button" });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text());
        this.status(this.#strings.say("copied"));
      } catch {
        const area = make("textarea", { readOnly: true, rows: 6, value: text(), "aria-label": label });
        button.replaceWith(area); // no permission: show the text for copying by hand
        area.select();
      }
    });
    return button;
  }
}
