// Forms of the comprehension check and of the questions after the trials.

import { make, prose } from "./screens.js";

/** A form of questions {name, html, type, options, required} that reads replies and marks mistakes. */
export class Form {
  #strings;
  #fields = new Map();
  element = make("form", { noValidate: true });

  constructor(questions, strings) {
    this.#strings = strings;
    for (const question of questions) this.element.append(this.#field(question));
    this.element.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Replies by the name of their question, without empty ones; several choices are joined by semicolons. */
  get replies() {
    const data = new FormData(this.element);
    const entries = [...new Set(data.keys())].map((name) => [name, data.getAll(name).map((value) => String(value).trim()).join("; ")]);
    return Object.fromEntries(entries.filter(([, value]) => value !== ""));
  }

  /** Whether all required questions are answered and all numbers valid; otherwise the first mistake gets the focus. */
  check() {
    const replies = this.replies;
    const problems = [];
    for (const [name, { question }] of this.#fields) {
      const reply = replies[name];
      if (question.required && reply === undefined) problems.push({ message: "field_missing", where: name });
      else if (question.type === "number" && reply !== undefined && !isNumber(reply)) problems.push({ message: "field_number", where: name });
    }
    this.mark(problems);
    return problems.length === 0;
  }

  /** Show `problems` {where: name of a question, message: name of a text} at their questions. */
  mark(problems) {
    for (const { error, inputs } of this.#fields.values()) {
      error.textContent = "";
      for (const input of inputs) input.removeAttribute("aria-invalid");
    }
    for (const { message, where } of problems) {
      const field = this.#fields.get(where);
      field.error.textContent = this.#strings.say(message);
      for (const input of field.inputs) input.setAttribute("aria-invalid", "true");
    }
    if (problems.length > 0) this.#fields.get(problems[0].where).inputs[0].focus();
  }

  #field(question) {
    const id = `field-${question.name}`;
    const error = make("p", { className: "error", id: `${id}-error` });
    const label = make("div", { id: `${id}-label` }, prose(question.html));
    if (question.required) (label.querySelector(".prose > :last-child") ?? label).append(` (${this.#strings.say("required")})`);
    const common = { "aria-describedby": error.id, name: question.name };
    let inputs;
    let body;
    const several = question.type === "multiple";
    if (question.type === "choice" || several) {
      inputs = question.options.map((value) => make("input", { ...common, type: several ? "checkbox" : "radio", value }));
      body = inputs.map((input) => make("label", { className: "option" }, input, make("span", { textContent: input.value })));
    } else if (question.type === "likert") {
      const values = Array.from({ length: question.points }, (_, place) => `${place + 1}`);
      const ends = question.options.length === 2 && question.points > 2;
      const names = ends ? [question.options[0], ...values.slice(1, -1).map(() => ""), question.options[1]] : question.options;
      inputs = values.map((value, place) => make("input", { ...common, type: "radio", value, "aria-label": names[place] ? `${value}: ${names[place]}` : value }));
      body = [make("div", { className: "likert" }, ...inputs.map((input, place) => make("label", {}, make("span", { textContent: input.value }), input, make("span", { textContent: names[place] ?? "" }))))];
    } else {
      const kind = question.type === "number" ? { inputMode: "decimal", type: "text" } : { maxLength: 5000, rows: 3 };
      inputs = [make(question.type === "number" ? "input" : "textarea", { ...common, ...kind, "aria-labelledby": label.id })];
      body = inputs;
    }
    this.#fields.set(question.name, { error, inputs, question });
    const role = { choice: "radiogroup", likert: "radiogroup", multiple: "group" }[question.type];
    const group = role ? { "aria-labelledby": label.id, role } : {};
    return make("div", { ...group, className: "field" }, label, ...body, error);
  }
}

function isNumber(text) {
  return Number.isFinite(Number(text.replace(",", ".")));
}
