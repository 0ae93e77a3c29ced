// Entry point of the participant page: connects its parts and leads from arrival through steps and trials to the end.

import { AnswerStorage } from "./answer_storage.js";
import { Api } from "./api.js";
import { applyAppearance } from "./appearance.js";
import { waitUntilDeviceFits } from "./device_check.js";
import { IdleTimer } from "./idle_timer.js";
import { Journal } from "./journal.js";
import { sendWhenLeaving } from "./leaving.js";
import { Outbox } from "./outbox.js";
import { Retries } from "./retries.js";
import { Run } from "./run.js";
import { make, paragraph, Screens } from "./screens.js";
import { Steps } from "./steps.js";
import { Stimuli } from "./stimuli.js";
import { keyLabel, Strings } from "./strings.js";
import { browserSecret, TabStorage } from "./tab_storage.js";
import { Trial } from "./trial.js";

const MAX_UNSENT = 20;

const byId = (id) => document.getElementById(id);

class Page {
  /** @type {import("../types").ParticipantSetting} */
  #setting = JSON.parse(byId("setting").textContent);
  #strings = new Strings(this.#setting.strings);
  #screens = new Screens(this.#strings);
  #api = new Api(location.pathname);
  #tabStorage = new TabStorage(location.pathname);
  #retries = new Retries({
    onMissingFile: (target) => this.#journal.note("load_failed", `target ${target}`),
    screens: this.#screens,
    strings: this.#strings,
  });
  /** @type {import("../types").ArrivalReply | null} */
  #arrival = null;
  #failedCheck = false;
  /** @type {any} */
  #out = null;
  /** @type {Outbox | null} */
  #outbox = null;
  /** @type {Journal | null} */
  #journal = null;
  /** @type {Stimuli | null} */
  #stimuli = null;
  /** @type {Trial | null} */
  #trial = null;
  /** @type {Run | null} */
  #run = null;
  /** @type {Steps | null} */
  #steps = null;

  async open() {
    applyAppearance(this.#setting);
    if (this.#setting.preview) return; // a preview stores nothing
    try {
      await this.#takeSteps();
    } catch (failure) {
      if (failure.code === "elsewhere") await this.#showElsewhere();
      else await this.#showFailure(failure);
    }
  }

  async #takeSteps() {
    await this.#openOutbox();
    await this.#arrive();
    const { review } = this.#arrival;
    let { status, step } = this.#arrival;
    const continues = step !== "out" && step !== "debrief";
    if (continues) await waitUntilDeviceFits({ arrival: this.#arrival, journal: this.#journal, screens: this.#screens, strings: this.#strings });
    const loading = this.#stimuli.hasFiles && continues ? this.#preload() : [];
    if (review && continues) await this.#steps.readInstructions(this.#strings.say("review"));
    this.#watchWithdrawal();
    while (step !== "debrief") {
      this.#offerWithdrawal(step);
      if (step === "trials" && this.#run.complete) {
        step = this.#stepAfter("trials"); // the last answers are being sent
        continue;
      }
      if (step === "out") return this.#showExit(status);
      if (step === "trials" || step === "practice") await this.#waitForFiles(loading);
      ({ next: step, status } = step === "trials" ? await this.#answerAll() : await this.#steps[step]());
    }
    this.#offerWithdrawal("debrief");
    await this.#steps.debrief({ given: () => this.#run.given, outbox: this.#outbox });
  }

  /** Send the answers that an earlier visit left unsent, whoever arrives now. */
  async #openOutbox() {
    const storage = (await AnswerStorage.open(location.pathname)) ?? this.#tabStorage;
    this.#outbox = new Outbox({
      onSent: (failure) => this.#screens.status(failure ? this.#strings.failure(failure) : ""),
      onRefused: (answers) => {
        if (!this.#run) return;
        this.#run.removeAnswers(answers.filter((answer) => answer.owner === this.#arrival.participant).length);
        this.#screens.progress(this.#run.given, this.#arrival.page.max_queries);
        this.#journal.note("answers_refused", answers.length);
      },
      onResult: (answer, result) => answer.owner === this.#arrival?.participant && this.#noteCheck(result),
      send: (list) => this.#api.answers(list),
      storage,
    });
    await this.#outbox.restore();
    await this.#outbox.flush(); // before arriving, or these answers would be counted twice
    sendWhenLeaving(this.#outbox, this.#api);
  }

  async #arrive() {
    const parameters = Object.fromEntries(new URLSearchParams(location.search));
    const arrival = await this.#retries.request(() => this.#api.arrive(parameters, { browser: browserSecret(), session: this.#tabStorage.session }));
    this.#arrival = arrival;
    // Whoever begins anew under the same id gets other queries than those that this tab has kept.
    const sameParticipant = this.#tabStorage.participant === arrival.participant && arrival.resumed;
    this.#tabStorage.keepSession(arrival.session, arrival.participant);
    this.#announce(arrival);
    const { page } = arrival;
    applyAppearance(page);
    this.#screens.participant(arrival.participant);
    this.#stimuli = new Stimuli(arrival.targets, this.#strings);
    this.#trial = new Trial(page, this.#stimuli, this.#strings);
    this.#run = Run.after(arrival, {
      fetchQuery: async (number, skipped) => {
        const query = await this.#retries.request(() => this.#api.query(number, { skipped }));
        this.#noteCheck(query);
        return query;
      },
      fetchSpare: (number) => this.#api.query(number, { spare: true }),
      keep: (queries) => this.#tabStorage.keepQueries(queries),
      kept: sameParticipant ? this.#tabStorage.queries : [],
      prepare: (query) => {
        const shown = this.#stimuli.prepare(query);
        this.#stimuli.prefetch(query.soon ?? []);
        return shown;
      },
      waiting: this.#outbox.waitingOf(arrival.participant),
    });
    this.#journal = new Journal({ send: (list) => this.#api.events(list), trial: () => this.#run.current?.trial ?? 0 });
    this.#journal.watch();
    this.#steps = new Steps({
      api: this.#api,
      arrival,
      askAgain: (missing) => {
        this.#run.resume(missing);
        return this.#answerAll();
      },
      retries: this.#retries,
      screens: this.#screens,
      stimuli: this.#stimuli,
      strings: this.#strings,
      trial: this.#trial,
    });
    if (arrival.tryout) this.#showTryout();
    if (arrival.resumed && arrival.step === "trials") this.#screens.status(this.#strings.say("resumed"));
    this.#offerKeySwitch(page.keys);
    const shown = arrival.targets.map(({ html, source, text }) => html ?? text ?? `<img src="${source}">`);
    const detail = { max_queries: page.max_queries, num_queries: this.#run.given, puid: arrival.participant, targets: shown };
    document.dispatchEvent(new CustomEvent("salmon:arrived", { detail })); // for the experimenter's scripts
  }

  /** Load the files while participants read: all, or if there are many, those of the practice and the first trials. */
  #preload() {
    const { load_all: all, soon, steps } = this.#arrival;
    const practised = (steps.practice?.queries ?? []).flatMap(({ head, left, right }) => [head, left, right]);
    return this.#stimuli.preload((done, files) => this.#screens.loading(done, files), all ? undefined : new Set([...practised, ...soon]));
  }

  /** Wait until the files are loaded; offer to retry those that failed, and then to go on without them. */
  async #waitForFiles(loading) {
    this.#screens.waitForFiles();
    let failed = await loading;
    for (let attempt = 0; failed.length > 0; attempt += 1) {
      for (const index of failed) this.#journal.note("load_failed", `target ${index}`);
      if (!(await this.#retries.offerRetry({ mayGoOn: attempt > 0 }))) return this.#retries.goOnWithout(failed);
      this.#screens.waitForFiles();
      failed = await this.#preload();
    }
  }

  async #answerAll() {
    const { page } = this.#arrival;
    const run = this.#run;
    const idle = this.#newIdleTimer();
    this.#trial.showButtons({ skip: page.skip_button, stop: page.max_queries <= 0 });
    let query = null;
    for (let asked = performance.now(); !this.#out; ) {
      this.#screens.progress(run.given, page.max_queries);
      if (this.#outbox.waiting >= MAX_UNSENT) await this.#waitForOutbox();
      query ??= await this.#retries.showWaiting(this.#nextReady());
      if (!query) break;
      const waited = performance.now() - asked;
      if (query.spare) this.#journal.note("spare", Math.round(waited));
      const decision = this.#trial.decision();
      await this.#trial.show(query);
      run.prefetch().then(() => run.loadSpare());
      idle.start();
      const { interrupted, late, skipped, stopped, timing, winner } = await decision;
      idle.stop();
      this.#screens.status("", { instead: this.#strings.say("still_there") });
      if (interrupted) {
        if (!this.#out) await this.#showPause();
        asked = performance.now();
        continue; // shows the same query again
      }
      if (stopped) break;
      if (skipped || late) {
        this.#journal.note("skip", late ? "time" : "button");
        run.skip();
      } else {
        const waits = { network_latency_ms: query.latency_ms ?? -1, query_wait_ms: Math.max(0, waited) };
        this.#outbox.put(run.answer(winner, { ...timing, ...waits }), this.#arrival.participant);
        document.dispatchEvent(new CustomEvent("salmon:answer", { detail: { given: run.given, rt_ms: timing.rt_ms, winner } }));
      }
      query = null;
      await this.#trial.gap();
      if (late) await this.#screens.next("", [paragraph(this.#strings.say("time_up"))]);
      if (timing && timing.rt_ms < (page.warn_rt_ms ?? 0)) await this.#showTooFast();
      if (this.#failedCheck) await this.#showFailedCheck();
      asked = performance.now();
    }
    if (this.#out) return { next: "out", status: this.#out };
    this.#screens.progress(run.given, page.max_queries);
    document.body.classList.add("no-more-queries");
    if (page.max_queries > 0) return { next: this.#stepAfter("trials") };
    await this.#outbox.flush();
    return this.#retries.request(() => this.#api.step("trials"));
  }

  /** Return the next query when its targets are loaded, or null at the end; those whose files are missing are passed over. */
  async #nextReady() {
    for (;;) {
      const query = await this.#run.next();
      if (!query || (await this.#retries.loadFiles(() => this.#stimuli.prepare(query)))) return query;
      this.#journal.note("skip", "file");
      this.#run.skip();
    }
  }

  /** Return the step after another in this experiment. */
  #stepAfter(step) {
    const { order } = this.#arrival.steps;
    return order[order.indexOf(step) + 1];
  }

  #newIdleTimer() {
    return new IdleTimer({
      onIdle: () => this.#screens.status(this.#strings.say("still_there")),
      onPause: () => this.#trial.interrupt(),
    });
  }

  /** Too many answers are unsent: wait until some are sent. */
  async #waitForOutbox() {
    this.#screens.show({ heading: this.#strings.say("saving"), parts: [paragraph(this.#strings.say("saving_long"))] });
    await this.#outbox.waitUntilFewerThan(MAX_UNSENT);
  }

  async #showPause() {
    this.#journal.note("paused");
    await this.#screens.next("", [paragraph(this.#strings.say("paused"))]);
    this.#screens.status("");
  }

  async #showTooFast() {
    this.#journal.note("too_fast");
    await this.#screens.next("", [paragraph(this.#strings.say("too_fast"))]);
  }

  async #showFailedCheck() {
    this.#failedCheck = false;
    await this.#screens.next("", [paragraph(this.#strings.say("check_failed"))]);
  }

  /**
   * Note what the server says of a check: to `warn`, or that the participant is `out` and the trials end.
   * @param {{out?: string, warn?: boolean}} reply
   */
  #noteCheck({ out, warn }) {
    if (warn) this.#failedCheck = true;
    if (!out) return;
    this.#out = out;
    this.#trial.interrupt();
  }

  /** Whoever has agreed to something may withdraw until the end; the button asks once more. */
  #offerWithdrawal(step) {
    byId("withdraw").hidden = !this.#arrival.steps.consent || ["welcome", "consent", "out", "debrief"].includes(step);
  }

  #watchWithdrawal() {
    const dialog = /** @type {HTMLDialogElement} */ (byId("withdrawal"));
    dialog.addEventListener("keydown", (event) => event.stopPropagation()); // keys answer nothing meanwhile
    byId("withdraw").addEventListener("click", () => dialog.showModal());
    byId("stay").addEventListener("click", () => dialog.close());
    byId("withdraw-now").addEventListener("click", async () => {
      dialog.close();
      await this.#outbox.flush();
      await this.#retries.request(() => this.#api.withdraw());
      location.reload(); // the page then shows that this has ended
    });
  }

  /** Offer to switch off keys that are single letters, because they interfere with speech input. */
  #offerKeySwitch(keys) {
    if (!keys.some((key) => key.length === 1)) return;
    const button = byId("keys");
    const label = () => {
      button.textContent = `${this.#strings.say(this.#trial.keysOn ? "keys_off" : "keys_on")} (${keys.map(keyLabel).join(" ")})`;
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      this.#trial.keysOn = !this.#trial.keysOn;
      label();
    });
    label();
  }

  /** Tell an experimenter that nothing is recorded, and offer the way to the last questions and the end. */
  #showTryout() {
    const banner = byId("tryout");
    const skip = make("button", { textContent: "Skip to the end", type: "button" });
    skip.addEventListener("click", async () => {
      skip.disabled = true;
      await this.#retries.request(() => this.#api.skipToEnd());
      location.reload();
    });
    banner.replaceChildren("Try-out: nothing is recorded.", ...(["questions", "debrief"].includes(this.#arrival.step) ? [] : [skip]));
    banner.hidden = false;
  }

  /** Tell other tabs of the same participant that this one takes over. */
  #announce({ participant, session }) {
    if (!("BroadcastChannel" in globalThis)) return; // the server tells the older tab at its next query
    const channel = new BroadcastChannel(`salmon ${location.pathname}`);
    channel.onmessage = ({ data }) => {
      if (data.participant === participant && data.session !== session) this.#showElsewhere();
    };
    channel.postMessage({ participant, session });
  }

  async #showElsewhere() {
    this.#trial?.close();
    this.#outbox.flush();
    await this.#screens.next("", [paragraph(this.#strings.say("elsewhere"))], "go_on_here");
    location.reload();
  }

  /** Show that the study is over: the participant declined, or failed the comprehension or the checks. */
  #showExit(status) {
    if (status === "failed_checks") return this.#steps.failedChecks();
    const parts = [paragraph(this.#strings.say({ declined: "declined", screened_out: "screened_out", withdrawn: "withdrawn" }[status] ?? "ended"))];
    const address = this.#arrival.steps.consent?.decline_url;
    if (status === "declined" && address) parts.push(make("a", { href: address, textContent: this.#strings.say("leave") }));
    this.#screens.show({ heading: this.#arrival.page.title, parts });
  }

  /** Show an error that stops the page, with a button that reloads it. */
  async #showFailure(failure) {
    this.#trial?.close();
    const sentence = failure.code ? this.#strings.failure(failure) : this.#strings.say("server_trouble");
    const shown = this.#screens.next("", [paragraph(sentence)], "try_again");
    if (!failure.code) {
      this.#journal?.note("page_failed", failure.message); // the server counts whose page failed
      throw failure; // a bug: also report it in the browser's console
    }
    await shown;
    location.reload();
  }
}

new Page().open();
