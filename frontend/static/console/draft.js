// An experiment's file while it is written: the editor, what the checker says, the files of the ZIP, the form, and the draft
// that is kept.

import { Failure, get, post } from "./api.js";
import { $, count, h, number, time } from "./dom.js";
import { DraftKeeper } from "./draft_keeper.js";
import { Editor } from "./editor.js";
import { SpecForm } from "./spec_form.js";
import { drawFiles } from "./target_files.js";

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
  /** Whether there are files that the experimenter has chosen or dropped. */
  hasOwnFiles = false;
  #editor;
  #keeper = null;
  #form;
  #slug;
  #base;
  #archive = null;
  #reading = 0;
  #timer = null;
  #turn = 0;

  /** `base` is the text of the saved revision or of a new file; `keep: false` shows a file that one may not change. */
  constructor({ spec, slug = "", label, keep = true }) {
    this.#slug = slug;
    this.#base = spec;
    this.#editor = new Editor($("#editor"), {
      value: spec,
      label,
      nonce: $('meta[name="style-nonce"]').content,
      readOnly: !keep,
      oninput: () => this.#changed(),
    });
    this.#form = new SpecForm($("#form"), (text) => this.#editor.replace(text));
    if (keep) this.#keeper = new DraftKeeper({ slug, read: () => this.spec, report: (what) => this.#report(what) });
    this.#showTabs();
    this.#open(keep);
  }

  get spec() {
    return this.#editor.value;
  }

  /** Replace the text in one step that can be undone. */
  set spec(text) {
    this.#editor.replace(text);
  }

  /** The draft has become an experiment: nothing is asked when the page is left. */
  finish() {
    this.#keeper?.stop();
  }

  /** The draft has become the newest revision. */
  revised() {
    this.#base = this.spec;
    this.#archive = null;
    this.#keeper?.restart();
    this.check();
  }

  /** Read chosen or dropped files: a YAML file into the editor, a ZIP or single files as the targets. */
  async readFiles(files) {
    const targets = [];
    for (const file of files) {
      if (/\.(ya?ml|txt)$/i.test(file.name)) this.spec = await file.text();
      else targets.push(file);
    }
    if (targets.length) await this.upload(targets);
  }

  /** Send a ZIP, or files that are added to those there are, and check again. */
  async upload(files, { own = true } = {}) {
    this.#archive = files;
    this.hasOwnFiles = own;
    const form = new FormData();
    for (const file of files) form.append("targets", file);
    form.set("spec", this.spec);
    this.#reading += 1;
    $("#zip").textContent = `Reading ${files.length === 1 ? files[0].name : count(files.length, "file")} …`;
    try {
      await this.#keeper.upload(form);
      $("#zip").textContent = "";
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      $("#zip").textContent = `${error.message} ${error.hint}`;
    }
    this.#reading -= 1;
    await this.check();
  }

  async removeFiles(name = "") {
    this.#archive = null;
    this.hasOwnFiles = false;
    $("#zip").textContent = "";
    await this.#keeper.removeTargets(name);
    await this.check();
  }

  async check() {
    const turn = ++this.#turn;
    /** @type {import("../types").CheckReply} */
    let reply;
    try {
      reply = await post("/api/check", { spec: this.spec, draft: this.#keeper !== null, slug: this.#slug });
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const problem = { line: 0, column: 0, message: error.message, hint: error.hint, warning: true, path: "", source: "", suggestion: "", sentence: error.message };
      reply = { problems: [problem], summary: null, files: null };
    }
    if (turn !== this.#turn) return; // outdated: the text has changed since
    if (reply.files?.reread && this.#archive && this.#reading === 0) {
      await this.upload(this.#archive, { own: this.hasOwnFiles });
      return;
    }
    this.showProblems(reply.problems);
    this.#showSummary(reply.summary);
    drawFiles($("#files-panel"), reply.files, { remove: this.#keeper ? (name) => this.removeFiles(name) : null });
    $("#files-tab").textContent = reply.files ? `Files (${number(reply.files.count)})` : "Files";
    this.#form.show(this.spec, Boolean(reply.files));
  }

  /**
   * Mark problems at their lines and list them, with links to the lines and a button that applies what is suggested.
   * @param {import("../types").ProblemRow[]} problems
   */
  showProblems(problems) {
    this.#editor.mark(problems);
    const mistakes = problems.filter(({ warning }) => !warning).length;
    $("#check-tab").textContent = problems.length ? `Check (${number(problems.length)})` : "Check";
    $("#problems-title").textContent = mistakes ? count(mistakes, "mistake") : problems.length ? count(problems.length, "warning") : "Nothing is wrong";
    $("#problems").replaceChildren(
      ...problems.map((problem) => {
        const text = [h("b", {}, problem.message), problem.hint ? ` ${problem.hint}` : ""];
        const line = problem.line > 0 ? this.#editor.lineOf(problem) : 0;
        const place = line > 0 ? `Line ${line}` : (problem.source || problem.path || "File");
        const head = line > 0
          ? h("button", { type: "button", class: "link", onclick: () => this.#editor.goTo(line, line === problem.line ? problem.column : 1) }, place)
          : h("span", { class: "place" }, place);
        const fix = problem.suggestion && problem.line > 0 && this.#keeper
          ? h("button", { type: "button", class: "fix", onclick: () => this.#editor.fix(problem) }, `Write ${problem.suggestion}`)
          : null;
        return h("li", { class: problem.warning ? "warning" : "error" }, head, h("span", {}, ...text, fix ? " " : "", fix ?? ""));
      }),
    );
  }

  async #open(keep) {
    $("#versions").hidden = !keep;
    if (keep) {
      try {
        const draft = await this.#keeper.open();
        this.hasOwnFiles = draft.zip !== null;
        if (draft.version > 0 && draft.spec !== null) {
          this.#editor.replace(draft.spec);
          this.#keeper.adopt(draft.version);
        }
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        this.#report({ status: `Drafts cannot be kept: ${error.message}` });
      }
      $("#files").addEventListener("change", (event) => this.readFiles(event.target.files));
      $("#versions").addEventListener("toggle", () => $("#versions").open && this.#showVersions());
      this.#acceptDrops();
      await this.readFiles($("#files").files); // files may have been chosen before this script ran
    }
    const schema = await get("/schema.json");
    this.#editor.schema = schema;
    this.#form.use(schema);
    await this.check();
  }

  #changed() {
    this.#keeper?.changed();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check(), PAUSE_MS);
  }

  /** @param {{status?: string, others?: string[], newer?: number, gone?: boolean, conflict?: object}} what */
  #report({ status, others, newer, gone, conflict }) {
    if (status !== undefined) $("#saved").textContent = status;
    if (others !== undefined) {
      const here = [...new Set(others)].join(", ");
      $("#others").hidden = others.length === 0;
      $("#others").textContent = here ? `${here} ${others.length > 1 ? "have" : "has"} this file open, too.` : "";
    }
    if (newer !== undefined) this.#offerNewer(newer);
    if (gone) $("#newer").replaceChildren("This draft was saved or discarded in another window. Reload the page to see what is there now.");
    if (gone) $("#newer").hidden = false;
    if (conflict !== undefined) this.#showConflict(conflict);
  }

  #offerNewer(version) {
    const place = $("#newer");
    place.hidden = !version;
    if (!version) return;
    const take = async () => {
      this.#editor.replace(await this.#keeper.textOf(version));
      this.#keeper.adopt(version);
      await this.check();
    };
    place.replaceChildren("A newer version was saved in another window. ", h("button", { type: "button", class: "second", onclick: take }, "Show it"));
  }

  #showConflict(theirs) {
    const place = $("#conflict");
    place.hidden = !theirs;
    if (!theirs) return;
    const take = () => {
      this.#editor.replace(theirs.spec ?? this.#base);
      this.#keeper.adopt(theirs.version);
    };
    const who = theirs.by ? `${theirs.by} saved another version` : "Another window saved this file";
    const shown = (title, text) =>
      h("div", {}, h("h3", {}, title), h("pre", { tabindex: "0", role: "region", "aria-label": title }, text));
    place.replaceChildren(
      h("p", {}, h("b", {}, `${who} while you were writing.`), " Choose one; the other stays in the history, and Undo brings it back."),
      h("div", { class: "two-versions" }, shown("Yours", this.spec), shown("Theirs", theirs.spec ?? "(saved as a revision, or discarded)")),
      h(
        "p",
        { class: "row" },
        h("button", { type: "button", onclick: () => this.#keeper.keepMine() }, "Keep mine"),
        h("button", { type: "button", class: "second", onclick: take }, "Take theirs"),
      ),
    );
  }

  async #showVersions() {
    await this.#keeper.save();
    const versions = await this.#keeper.versions();
    const restore = async (number_) => {
      this.#editor.replace(await this.#keeper.textOf(number_));
    };
    const rows = versions.map((version) =>
      h(
        "li",
        {},
        time(version.at_ms),
        ` · ${version.by} · ${count(version.lines, "line")} `,
        h("button", { type: "button", class: "plain", onclick: () => restore(version.number) }, "Restore"),
      ),
    );
    const discard = async () => {
      this.#editor.replace(this.#base);
      await this.#keeper.discard();
      await this.check();
    };
    $("#version-list").replaceChildren(...(rows.length ? rows : [h("li", { class: "quiet" }, "Nothing has been changed yet.")]));
    $("#discard").hidden = rows.length === 0;
    $("#discard").onclick = async () => {
      await discard();
      $("#versions").open = false;
    };
  }

  #showSummary(summary) {
    const place = $("#summary");
    if (!summary) {
      place.replaceChildren(h("p", { class: "failed" }, "Fix these problems before the experiment can run:"));
      return;
    }
    const pictures = summary.pictures.length ? `; for texts: ${summary.pictures.join(", ")}` : "";
    const rows = [
      ["Title", summary.title],
      ["Targets", summary.targets === null ? "from the ZIP" : `${number(summary.targets)}${pictures}`],
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

  /** Tabs beside the text, by the keys that tabs have everywhere. */
  #showTabs() {
    const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[role="tab"]')]);
    const choose = (chosen) => {
      for (const tab of tabs) {
        tab.setAttribute("aria-selected", String(tab === chosen));
        tab.tabIndex = tab === chosen ? 0 : -1;
        $(`#${tab.getAttribute("aria-controls")}`).hidden = tab !== chosen;
      }
    };
    tabs.forEach((tab, place) => {
      tab.addEventListener("click", () => choose(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(place + step + tabs.length) % tabs.length];
        choose(next);
        next.focus();
      });
    });
  }

  #acceptDrops() {
    const area = document.body;
    const carriesFiles = (event) => [...event.dataTransfer.types].includes("Files");
    area.addEventListener("dragover", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      $("#drop").classList.add("over");
    }, true);
    area.addEventListener("dragleave", () => $("#drop").classList.remove("over"));
    area.addEventListener("drop", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      event.stopPropagation();
      $("#drop").classList.remove("over");
      this.readFiles(event.dataTransfer.files);
    }, true);
  }
}
