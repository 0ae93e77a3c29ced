// A form for the common experiment beside its file. It writes single values of the file and reads them back; what it does not
// show stays in the file as it is.

import { h } from "./dom.js";
import { read, valueAt, withValue } from "./spec_document.js";
import { schemaAt, typeOf } from "./spec_schema.js";

const OWN = ["name", "text", "type", "options", "required"];
const PLATFORMS = {
  link: "A link that you send",
  prolific: "Prolific",
  connect: "CloudResearch Connect",
  sona: "SONA",
  mturk: "Mechanical Turk",
};
const TYPES = { text: "Text", number: "Number", choice: "Choice", likert: "Scale (Likert)", multiple: "Several choices" };

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const list = (value) => (Array.isArray(value) ? value.map(String).join("\n") : "");
const text = (value) => (value === null || value === undefined ? "" : String(value));

export class SpecForm {
  #place;
  #write;
  #schema = null;
  #text = "";
  #hasFiles = false;
  #fields = [];
  #questions = h("div", { class: "questions" });

  /** `write` is called with the new text of the file after every change in the form. */
  constructor(place, write) {
    this.#place = place;
    this.#write = write;
  }

  /** Take the schema, which says what kinds of questions and platforms there are. */
  use(schema) {
    this.#schema = schema;
    this.#build();
    this.show(this.#text, this.#hasFiles);
  }

  /** Show what the file says, unless the change came from here. */
  show(source, hasFiles) {
    const before = this.#text;
    this.#text = source;
    this.#hasFiles = hasFiles;
    if (!this.#schema) return;
    const document = read(source);
    this.#place.querySelector("fieldset").disabled = !document;
    this.#place.querySelector(".unreadable").hidden = Boolean(document);
    if (!document) return;
    for (const { input, load } of this.#fields) if (input !== window.document.activeElement) load(document);
    const focused = this.#questions.contains(window.document.activeElement);
    if (!focused || before === source) this.#showQuestions(document);
  }

  #build() {
    this.#fields = [];
    const html = (key) => ["html", key];
    const label = (words, input, hint = "") => h("label", {}, words, hint ? h("span", { class: "quiet" }, ` ${hint}`) : null, input);
    const platforms = schemaAt(this.#schema, ["recruitment", "platform"])?.enum ?? [];
    const targets = this.#area(["targets"], { rows: 4, from: list, to: (value) => (lines(value).length ? lines(value) : undefined) });
    const dropped = h("p", { class: "quiet" });
    this.#fields.push({
      input: dropped,
      load: (document) => {
        const written = valueAt(document, ["targets"]);
        const other = written !== undefined && written !== null && !Array.isArray(written);
        targets.disabled = this.#hasFiles || other;
        dropped.textContent = this.#hasFiles
          ? "The dropped files are the targets: see Files."
          : other
            ? `The file has targets: ${written}.`
            : "Drop pictures, sounds or videos on this page, or write texts.";
      },
    });
    const consent = this.#area(["consent", "text"], { rows: 4, to: (value) => value.trimEnd() || undefined });
    const platform = this.#select(["recruitment", "platform"], platforms.map((value) => [value, PLATFORMS[value] ?? value]));
    this.#place.replaceChildren(
      h("p", { class: "unreadable failed", hidden: true }, "The file cannot be read as YAML at the moment: fix the marked line, then the form goes on."),
      h(
        "fieldset",
        { class: "form" },
        h("legend", { class: "visually-hidden" }, "The common experiment"),
        label("Title", this.#title()),
        label("Question above every trial", this.#area(html("instructions"), { rows: 2, to: (value) => value.trimEnd() || undefined })),
        label("Targets", targets, "one in each line"),
        dropped,
        label("Answers from each participant", this.#number(html("max_queries"), 50)),
        label("Consent", consent, "empty: none is asked for"),
        label("Participants come from", platform),
        label("Completion code", this.#input(["recruitment", "completion_code"]), "from the platform, if it gives one"),
        h("h3", {}, "Questions after the trials"),
        this.#questions,
        h("button", { type: "button", class: "second", onclick: () => this.#add() }, "Add a question"),
      ),
    );
  }

  #change(path, value) {
    const changed = withValue(this.#text, path, value);
    if (changed === null || changed === this.#text) return;
    this.#text = changed;
    this.#write(changed);
  }

  #field(input, path, { from = text, to = (value) => value || undefined, event = "input" }) {
    input.addEventListener(event, () => this.#change(path, to(input.value)));
    this.#fields.push({ input, load: (document) => (input.value = from(valueAt(document, path))) });
    return input;
  }

  #input(path, options = {}) {
    return this.#field(h("input", { autocomplete: "off" }), path, options);
  }

  /** The title stands under html or at the top; a new one is written at the top. */
  #title() {
    const input = h("input", { autocomplete: "off" });
    const path = () => {
      const document = read(this.#text);
      return document && !document.has("title") && document.hasIn(["html", "title"]) ? ["html", "title"] : ["title"];
    };
    input.addEventListener("input", () => this.#change(path(), input.value || undefined));
    this.#fields.push({ input, load: (document) => (input.value = text(valueAt(document, path()))) });
    return input;
  }

  #area(path, { rows, ...options }) {
    return this.#field(h("textarea", { rows: String(rows) }), path, options);
  }

  #number(path, usual) {
    const to = (value) => (value === "" ? undefined : Math.round(Number(value)));
    return this.#field(h("input", { type: "number", min: "0", step: "1", placeholder: String(usual) }), path, { to });
  }

  #select(path, options) {
    const input = h("select", {}, ...options.map(([value, words]) => h("option", { value }, words)));
    return this.#field(input, path, { from: (value) => text(value) || options[0]?.[0], event: "change" });
  }

  #add() {
    const document = read(this.#text);
    const before = document ? valueAt(document, ["questions"]) : null;
    const names = new Set((Array.isArray(before) ? before : []).map(({ name }) => name));
    let place = names.size + 1;
    while (names.has(`question_${place}`)) place += 1;
    const added = { name: `question_${place}`, text: "Your question?", type: "text" };
    this.#change(["questions", ...(Array.isArray(before) && before.length ? [before.length] : [])], Array.isArray(before) && before.length ? added : [added]);
    const changed = read(this.#text);
    if (changed) this.#showQuestions(changed);
    this.#questions.lastElementChild?.querySelector("input")?.focus();
  }

  #showQuestions(document) {
    const questions = valueAt(document, ["questions"]);
    this.#questions.replaceChildren(...(Array.isArray(questions) ? questions : []).map((question, place) => this.#question(question ?? {}, place)));
  }

  #question(question, place) {
    const path = (key) => ["questions", place, key];
    const shape = schemaAt(this.#schema, ["questions", "*"]);
    const set = (key, value) => this.#change(path(key), value);
    const own = (key, input, to = (value) => value || undefined) => {
      input.value = text(question[key]);
      input.addEventListener("input", () => set(key, to(input.value)));
      return input;
    };
    const options = h("textarea", { rows: "3" });
    options.value = list(question.options);
    options.addEventListener("input", () => set("options", lines(options.value).length ? lines(options.value) : undefined));
    const type = h("select", {}, ...(shape.properties.type?.enum ?? []).map((value) => h("option", { value }, TYPES[value] ?? value)));
    type.value = question.type ?? shape.properties.type?.default ?? "text";
    const optionsLabel = h("label", {}, "Options", h("span", { class: "quiet" }, " one in each line"), options);
    const showOptions = () => (optionsLabel.hidden = !["choice", "multiple"].includes(type.value) && !options.value);
    type.addEventListener("change", () => {
      set("type", type.value);
      if (!["choice", "multiple"].includes(type.value)) set("options", undefined);
      else if (!options.value) set("options", lines((options.value = "Yes\nNo")));
      showOptions();
    });
    showOptions();
    const required = h("input", { type: "checkbox" });
    required.checked = question.required === true;
    required.addEventListener("change", () => set("required", required.checked || undefined));
    // Kinds of questions bring keys of their own, as the points of a scale: each gets a field as the schema describes it.
    const others = Object.entries(shape.properties).filter(([key]) => !OWN.includes(key)).map(([key, described]) => this.#other(key, described, question, set));
    return h(
      "fieldset",
      { class: "question" },
      h("legend", {}, `Question ${place + 1}`),
      h("label", {}, "Text", own("text", h("input", { autocomplete: "off" }), (value) => value)),
      h("label", {}, "Column", own("name", h("input", { autocomplete: "off", maxlength: "40" }), (value) => value)),
      h("label", {}, "Answered by", type),
      optionsLabel,
      ...others,
      h("label", { class: "inline" }, required, " Must be answered"),
      h("button", { type: "button", class: "plain", onclick: () => { this.#change(["questions", place], undefined); this.show(this.#text, this.#hasFiles); } }, "Remove this question"),
    );
  }

  #other(key, described, question, set) {
    const many = typeOf(described) === "array";
    const input = h(many ? "textarea" : "input", many ? { rows: "3" } : { type: typeOf(described) === "integer" ? "number" : "text", autocomplete: "off" });
    input.value = many ? list(question[key]) : text(question[key]);
    const to = (value) => (value === "" ? undefined : typeOf(described) === "integer" ? Number(value) : value);
    input.addEventListener("input", () => set(key, many ? (lines(input.value).length ? lines(input.value) : undefined) : to(input.value)));
    return h("label", {}, key.replaceAll("_", " "), h("span", { class: "quiet" }, ` ${described.description ?? ""}`), input);
  }
}
