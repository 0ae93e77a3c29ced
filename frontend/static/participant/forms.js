// Forms around the trials: questions with one right option, and questions about the participant.

import { make, prose } from "./screens.js";

/** Fields made of questions {name, html, type, options, required}, their replies, and what is wrong with them. */
export class Form {
  #strings;
  #fields = new Map();
  element = make("form", { noValidate: true });

  constructor(questions, strings) {
    this.#strings = strings;
    for (const question of questions) this.element.append(this.#field(question));
    this.element.addEventListener("submit", (event) => event.preventDefault());
  }

  /** Name of each question -> what was written or chosen; absent where nothing was. */
  get replies() {
    const entries = [...new FormData(this.element)].map(([name, value]) => [name, value.trim()]);
    return Object.fromEntries(entries.filter(([, value]) => value !== ""));
  }

  /** Whether every required question is answered and every number is one; otherwise the first bad one gets the focus. */
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

  /** Say at each question what is wrong with it: `problems` are {where: name, message: name of a text}. */
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
    if (question.type === "choice") {
      inputs = question.options.map((value) => make("input", { ...common, type: "radio", value }));
      body = inputs.map((input) => make("label", { className: "option" }, input, make("span", { textContent: input.value })));
    } else {
      const kind = question.type === "number" ? { inputMode: "decimal", type: "text" } : { maxLength: 5000, rows: 3 };
      inputs = [make(question.type === "number" ? "input" : "textarea", { ...common, ...kind, "aria-labelledby": label.id })];
      body = inputs;
    }
    this.#fields.set(question.name, { error, inputs, question });
    const group = question.type === "choice" ? { "aria-labelledby": label.id, role: "radiogroup" } : {};
    return make("div", { ...group, className: "field" }, label, ...body, error);
  }
}

function isNumber(text) {
  return Number.isFinite(Number(text.replace(",", ".")));
}
