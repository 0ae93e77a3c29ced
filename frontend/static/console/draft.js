// The editor of an experiment file, which is checked while it is typed, and its ZIP of targets.

import { Failure, post } from "./api.js";
import { $, count, h, number } from "./dom.js";
import { Editor } from "./editor.js";

const PAUSE_MS = 250;

const STEPS = {
  welcome: "welcome",
  consent: "consent",
  instructions: "instructions",
  practice: "practice",
  comprehension: "comprehension check",
  trials: "trials",
  questions: "questions",
  debrief: "debriefing",
};

export class Draft {
  archive = null;
  onchange = () => {};
  #editor;
  #slug;
  #timer = null;
  #turn = 0;

  constructor({ spec, slug = "", label }) {
    this.#slug = slug;
    this.#editor = new Editor($("#editor"), { value: spec, label, oninput: () => this.#changed() });
    $("#files").addEventListener("change", (event) => this.readFiles(event.target.files));
    this.#acceptDrops();
    this.check();
    this.readFiles($("#files").files); // files may have been chosen before this script ran
  }

  get spec() {
    return this.#editor.value;
  }

  set spec(text) {
    this.#editor.value = text;
    this.#changed();
  }

  /** Read chosen or dropped files: a YAML file into the editor, a ZIP as the targets. */
  async readFiles(files) {
    for (const file of files) {
      if (/\.zip$/i.test(file.name)) this.setArchive(file);
      else this.spec = await file.text();
    }
  }

  setArchive(file) {
    this.archive = file;
    const chip = $("#zip");
    chip.hidden = !file;
    if (file) {
      chip.replaceChildren(
        `Targets: ${file.name} (${number(Math.ceil(file.size / 1000))} kB) `,
        h("button", { type: "button", class: "plain", onclick: () => this.setArchive(null) }, "Remove"),
      );
    }
    this.check();
  }

  async check() {
    const turn = ++this.#turn;
    let reply;
    try {
      reply = await post("/api/check", { spec: this.spec, zip: this.archive !== null, slug: this.#slug });
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      reply = { problems: [{ line: 0, column: 0, message: error.message, hint: error.hint, warning: true }], summary: null };
    }
    if (turn !== this.#turn) return; // outdated: the text has changed since
    this.showProblems(reply.problems);
    this.#showSummary(reply.summary);
    this.onchange(reply.summary !== null);
  }

  /** Mark problems at their lines and list them, with links to the lines. */
  showProblems(problems) {
    this.#editor.mark(problems);
    $("#problems").replaceChildren(
      ...problems.map((problem) => {
        const text = [h("b", {}, problem.message), problem.hint ? ` ${problem.hint}` : ""];
        const place = problem.line > 0 ? `Line ${problem.line}` : (problem.path || "File");
        const head = problem.line > 0
          ? h("button", { type: "button", class: "link", onclick: () => this.#editor.goTo(problem.line, problem.column) }, place)
          : h("span", {}, place);
        return h("li", { class: problem.warning ? "warning" : "error" }, head, h("span", {}, ...text));
      }),
    );
  }

  #changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check(), PAUSE_MS);
  }

  #showSummary(summary) {
    const place = $("#summary");
    if (!summary) {
      place.replaceChildren(h("p", { class: "failed" }, "Fix these problems before the experiment can run:"));
      return;
    }
    const rows = [
      ["Title", summary.title],
      ["Targets", summary.targets === null ? "from the ZIP" : number(summary.targets)],
      ["Samplers", summary.samplers.map(({ name, share }) => `${name} ${share} %`).join(", ")],
      ["Per participant", this.#workload(summary)],
      ["Steps", summary.steps.map((step) => STEPS[step] ?? step).join(" → ")],
      ["Recruitment", summary.platform],
    ];
    place.replaceChildren(
      h("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    );
  }

  #workload({ queries, minutes }) {
    return queries > 0 ? `${count(queries, "query", "queries")}, about ${minutes} min` : "as many queries as they like";
  }

  #acceptDrops() {
    const area = document.body;
    area.addEventListener("dragover", (event) => {
      event.preventDefault();
      $("#drop").classList.add("over");
    });
    area.addEventListener("dragleave", () => $("#drop").classList.remove("over"));
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      $("#drop").classList.remove("over");
      this.readFiles(event.dataTransfer.files);
    });
  }
}
