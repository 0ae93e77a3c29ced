// The steps around the trials: welcome, consent, instructions, practice, comprehension, questions and debriefing.

import { Form } from "./forms.js";
import { make, paragraph, prose } from "./screens.js";
import { keyLabel } from "./strings.js";

const FINISH_RETRY_MS = 1000;
const FINISH_TIMEOUT_MS = 60_000;

/**
 * `askAgain(missing)` shows as many more queries.
 * @typedef {{
 *   api: import("./api.js").Api, arrival: import("../types").ArrivalReply, askAgain: (missing: number) => Promise<unknown>,
 *   retries: import("./retries.js").Retries, screens: any, stimuli: any, strings: any, trial: any,
 * }} Parts
 */

export class Steps {
  /** @type {Parts} */
  #parts;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  async welcome() {
    const { arrival, strings } = this.#parts;
    const { fullscreen, keys, max_queries: count, title } = arrival.page;
    const [left, right] = keys.map(keyLabel);
    const keyboard = keys.length > 0 && !matchMedia("(hover: none) and (pointer: coarse)").matches;
    const lines = [
      count > 0 ? strings.say("welcome_count", { count }) : strings.say("welcome_open_end"),
      keyboard ? strings.say("welcome_keys", { left, right }) : strings.say("welcome_pointer"),
    ];
    const parts = [make("p", { className: "title", innerHTML: title }), ...lines.map(paragraph)];
    if (fullscreen && document.fullscreenEnabled) {
      const button = make("button", { textContent: strings.say("fullscreen"), type: "button" });
      button.addEventListener("click", () => document.documentElement.requestFullscreen().catch(() => {}));
      parts.push(make("div", { className: "aside" }, button));
    }
    await this.#parts.screens.next(strings.say("welcome"), parts, "begin");
    this.#complete("welcome").catch(() => {}); // this step works without the server
    const { order } = arrival.steps;
    return { next: order[order.indexOf("welcome") + 1] };
  }

  async consent() {
    const { arrival, screens, strings } = this.#parts;
    const { html, version } = arrival.steps.consent;
    const agreed = await screens.show({
      actions: { agree: { label: strings.say("agree") }, disagree: { label: strings.say("disagree") } },
      heading: strings.say("consent"),
      parts: [prose(html)],
    });
    return this.#complete("consent", { agreed: agreed === "agree", language: arrival.language, version });
  }

  /** Show the instructions and complete the step. */
  async instructions() {
    await this.readInstructions();
    return this.#complete("instructions");
  }

  async readInstructions(note = "") {
    const { arrival, screens, strings } = this.#parts;
    const pages = arrival.steps.instructions ?? [];
    for (let page = 0; page < pages.length; ) {
      const { html, image } = pages[page];
      const parts = [prose(html)];
      if (note && page === 0) parts.unshift(paragraph(note));
      if (image) parts.push(make("img", { alt: "", className: "illustration", src: image }));
      if (pages.length > 1) parts.push(make("p", { className: "quiet", textContent: strings.say("page_of", { page: page + 1, pages: pages.length }) }));
      const actions = { next: { label: strings.say("continue") } };
      if (page > 0) actions.back = { label: strings.say("back") };
      const pressed = await screens.show({ actions, heading: strings.say("instructions"), parts });
      page += pressed === "back" ? -1 : 1;
    }
  }

  async practice() {
    const { arrival, screens, strings, trial } = this.#parts;
    const { feedback, queries } = arrival.steps.practice;
    await screens.next(strings.say("practice"), [paragraph(strings.say("practice_start"))]);
    const trials = [];
    trial.showButtons({ skip: false, stop: false });
    for (const [query, shown] of queries.entries()) {
      const decided = await this.#practise(shown);
      if (!decided) continue;
      const { timing, winner } = decided;
      trials.push({ query, rt_ms: timing.rt_ms, winner });
      if (feedback) await trial.showFeedback(strings.say(winner === shown.nearer ? "practice_right" : "practice_wrong"));
      await trial.gap();
    }
    await screens.next(strings.say("practice"), [paragraph(strings.say("practice_done"))]);
    return this.#complete("practice", { trials });
  }

  /** Show a query of the practice until it is answered in time; null if it is passed over, because a file is missing. */
  async #practise(shown) {
    const { retries, screens, stimuli, strings, trial } = this.#parts;
    for (;;) {
      if (!(await retries.loadFiles(() => stimuli.prepare(shown)))) return null;
      const decision = trial.decision();
      await trial.show(shown);
      const { late, timing, winner } = await decision;
      if (timing) return { timing, winner };
      await trial.gap();
      if (late) await screens.next("", [paragraph(strings.say("time_up"))]);
    }
  }

  async comprehension() {
    const { arrival, screens, strings } = this.#parts;
    const { attempts, questions } = arrival.steps.comprehension;
    let left = arrival.steps.comprehension.attempts_left;
    for (;;) {
      const fields = questions.map((question, place) => ({ ...question, name: `${place}`, required: true, type: "choice" }));
      const form = new Form(fields, strings);
      await screens.show({
        actions: { send: { check: () => form.check(), label: strings.say("send") } },
        heading: strings.say("check"),
        parts: [form.element],
      });
      const options = questions.map((_, place) => form.replies[place]);
      const reply = await this.#complete("comprehension", { attempt: attempts - left + 1, options });
      if (reply.next !== "comprehension") return reply;
      left = reply.attempts_left;
      const again = strings.say("check_again", { count: left });
      if (arrival.steps.instructions) await this.readInstructions(again);
      else await screens.next(strings.say("check"), [paragraph(again)]);
    }
  }

  async questions() {
    const { arrival, screens, strings } = this.#parts;
    const form = new Form(arrival.steps.questions, strings);
    for (;;) {
      await screens.show({
        actions: { send: { check: () => form.check(), label: strings.say("send") } },
        heading: strings.say("questions"),
        parts: [form.element],
      });
      try {
        return await this.#complete("questions", { replies: form.replies });
      } catch (failure) {
        if (failure.code !== "form") throw failure;
        form.mark(failure.problems);
      }
    }
  }

  /** Save the remaining answers, then show the end; `given()` returns how many answers the page has counted. */
  async debrief({ given, outbox }) {
    const { screens, strings } = this.#parts;
    screens.show({ heading: strings.say("saving") });
    const reply = await this.#save({ given, outbox });
    await this.#showEnd(reply, outbox);
  }

  /** Wait until the server has all answers and return its reply; after a minute, also offer a copy of them. */
  async #save({ given, outbox }) {
    const { api, screens, strings } = this.#parts;
    const since = performance.now();
    let offered = false;
    for (;;) {
      const long = performance.now() - since > FINISH_TIMEOUT_MS;
      try {
        await outbox.flush();
        const reply = await api.finish(given(), long);
        if (reply.complete) return reply;
        if (outbox.waiting === 0 && !long) await this.#parts.askAgain(reply.missing);
      } catch (failure) {
        if (!failure.retryable) throw failure;
        screens.status(strings.failure(failure));
      }
      if (long && !offered) {
        offered = true;
        screens.show({ heading: strings.say("saving"), parts: [paragraph(strings.say("saving_long")), this.#backupButton(outbox)] });
      }
      await new Promise((resolve) => setTimeout(resolve, FINISH_RETRY_MS));
    }
  }

  /** Create a button that copies the unsent answers. */
  #backupButton(outbox) {
    const { screens, strings } = this.#parts;
    return make("div", { className: "aside" }, screens.copyButton(strings.say("copy_backup"), () => outbox.backup));
  }

  /** Say that the study ends because checks failed; a platform that has a code for that gets it. */
  async failedChecks(/** @type {any} */ reply = null) {
    const { api, arrival, retries, strings } = this.#parts;
    const way = reply ?? (await retries.request(() => api.finish(0, false)));
    const parts = [paragraph(strings.say("failed_checks"))];
    if (!way.code) parts.push(paragraph(strings.say("return_submission")));
    await this.#showWayOut(arrival.page.title, parts, way);
    leave(way);
  }

  /**
   * @param {import("../types").FinishReply} reply
   * @param {any} outbox
   */
  async #showEnd(reply, outbox) {
    if (reply.out) return this.failedChecks(reply);
    const { api, screens, strings } = this.#parts;
    screens.status("");
    const thanks = make("div", { className: "prose", id: "debrief", innerHTML: reply.debrief }); // cleaned by the server
    const parts = [make("div", { className: "debrief", id: "debriefModal" }, thanks)];
    if (reply.save_incomplete) parts.push(paragraph(strings.say("save_incomplete")));
    if (outbox.waiting > 0) parts.push(this.#backupButton(outbox));
    const pressed = this.#showWayOut(strings.say("ended"), parts, reply);
    document.dispatchEvent(new CustomEvent("salmon:debrief"));
    await pressed;
    await api.step("debrief").catch(() => {}); // a failure must not keep anybody from leaving
    leave(reply);
  }

  /**
   * Show the last page with the code, if there is one; resolves when the button that leads back is pressed.
   * @param {string} heading
   * @param {any[]} parts
   * @param {import("../types").FinishReply} way
   */
  #showWayOut(heading, parts, { code, credited, form, redirect }) {
    const { screens, strings } = this.#parts;
    if (code) {
      parts.push(make("p", { id: "code" }, `${strings.say("your_code")}: `, make("code", { textContent: code })));
      parts.push(make("div", { className: "aside" }, screens.copyButton(strings.say("copy"), () => code)));
    }
    if (credited) parts.push(paragraph(strings.say("credited")));
    const actions = {};
    if (form) actions.submit = { label: strings.say("submit") };
    else if (redirect) actions.return = { label: strings.say("return") };
    return screens.show({ actions, heading, parts });
  }

  /**
   * Tell the server that a step is done, with retries; the reply names the next step.
   * @param {string} step
   * @param {import("../types").StepBody} body
   * @returns {Promise<import("../types").StepReply>}
   */
  #complete(step, body = {}) {
    return this.#parts.retries.request(() => this.#parts.api.step(step, body));
  }
}

/**
 * Go back to the platform.
 * @param {import("../types").FinishReply} way
 */
function leave({ form, redirect }) {
  if (form) submit(...form);
  else location.assign(redirect);
}

/** Submit a form to another site: Mechanical Turk requires it at the end of a task. */
function submit(address, fields) {
  const inputs = Object.entries(fields).map(([name, value]) => make("input", { name, type: "hidden", value }));
  const form = make("form", { action: address, method: "post" }, ...inputs);
  document.body.append(form);
  form.submit();
}
