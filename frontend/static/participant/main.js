// The participant page: arrive, take the steps, answer query after query, finish. What belongs together is wired here.

import { Api } from "./api.js";
import { dress, fits } from "./appearance.js";
import { Idle } from "./idle.js";
import { Journal } from "./journal.js";
import { Memory } from "./memory.js";
import { Outbox } from "./outbox.js";
import { Run } from "./run.js";
import { make, paragraph, Screens } from "./screens.js";
import { Shelf } from "./shelf.js";
import { Steps } from "./steps.js";
import { Stimuli } from "./stimuli.js";
import { keyLabel, Strings } from "./strings.js";
import { Trial } from "./trial.js";

const RETRY_MS = [500, 1000, 2000, 4000];
const NOTICE_MS = 300; // a shorter wait is not worth a word
const MOST_UNSENT = 20;

const byId = (id) => document.getElementById(id);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Page {
  #setting = JSON.parse(byId("setting").textContent);
  #strings = new Strings(this.#setting.strings);
  #screens = new Screens(this.#strings);
  #api = new Api(location.pathname);
  #memory = new Memory(location.pathname);
  #arrival = null;
  #outbox = null;
  #journal = null;
  #stimuli = null;
  #trial = null;
  #run = null;
  #steps = null;

  async open() {
    dress(this.#setting);
    if (this.#setting.preview) return; // nothing is started, nothing is stored
    try {
      await this.#walk();
    } catch (failure) {
      if (failure.code === "elsewhere") await this.#elsewhere();
      else this.#stop(failure);
    }
  }

  async #walk() {
    await this.#openOutbox();
    await this.#arrive();
    const { page, review, targets } = this.#arrival;
    if (!fits(page.devices)) await this.#waitForDevice();
    let { status, step } = this.#arrival;
    const files = targets.some((target) => target.source);
    const loading = files && step !== "out" && step !== "debrief" ? this.#preload() : [];
    if (review) await this.#steps.readInstructions(this.#strings.say("review"));
    while (step !== "debrief") {
      if (step === "trials" && this.#run.complete) step = this.#after("trials"); // the last answers are on their way
      if (step === "out") return this.#leave(status);
      if (step === "trials" || step === "practice") await this.#waitForFiles(loading);
      ({ next: step, status } = step === "trials" ? await this.#answerAll() : await this.#steps[step]());
    }
    return this.#steps.debrief({ given: () => this.#run.given, outbox: this.#outbox });
  }

  /** Answers that an earlier opening of the page could not send go out first, whoever arrives now. */
  async #openOutbox() {
    const shelf = await Shelf.open(location.pathname);
    this.#outbox = new Outbox({
      changed: (failure) => this.#screens.status(failure ? this.#strings.failure(failure) : ""),
      refused: (answers) => {
        if (!this.#run) return;
        this.#run.lost(answers.filter((answer) => answer.owner === this.#arrival.participant).length);
        this.#screens.progress(this.#run.given, this.#arrival.page.max_queries);
        this.#journal.note("answers_refused", answers.length);
      },
      send: (list) => this.#api.answers(list),
      shelf,
    });
    await this.#outbox.restore();
    this.#outbox.flush();
    addEventListener("online", () => this.#outbox.flush());
    const sendNow = () => this.#outbox.waiting > 0 && this.#api.beacon(this.#outbox.unsent);
    addEventListener("pagehide", sendNow);
    addEventListener("visibilitychange", () => document.visibilityState === "hidden" && sendNow());
    addEventListener("beforeunload", (event) => this.#outbox.failing && event.preventDefault());
  }

  async #arrive() {
    const parameters = Object.fromEntries(new URLSearchParams(location.search));
    const arrival = await this.#patiently(() => this.#api.arrive(parameters, this.#memory.session));
    this.#arrival = arrival;
    const sameParticipant = this.#memory.participant === arrival.participant;
    this.#memory.keepSession(arrival.session, arrival.participant);
    this.#announce(arrival);
    const { page } = arrival;
    dress(page);
    this.#screens.participant(arrival.participant);
    this.#stimuli = new Stimuli(arrival.targets, this.#strings);
    this.#trial = new Trial(page, this.#stimuli, this.#strings);
    this.#run = new Run({
      fetchQuery: () => this.#patiently(() => this.#api.query()),
      given: arrival.answers + this.#outbox.waitingOf(arrival.participant),
      keep: (queries) => this.#memory.keepQueries(queries),
      kept: sameParticipant ? this.#memory.queries : [],
      limit: page.max_queries,
    });
    this.#journal = new Journal({ send: (list) => this.#api.events(list), trial: () => this.#run.current?.trial ?? 0 });
    this.#journal.watch();
    this.#steps = new Steps({
      api: this.#api,
      arrival,
      insist: (work) => this.#insist(work),
      missing: (count) => {
        this.#run.lost(count);
        return this.#answerAll();
      },
      patiently: (request) => this.#patiently(request),
      screens: this.#screens,
      stimuli: this.#stimuli,
      strings: this.#strings,
      trial: this.#trial,
    });
    if (arrival.resumed && arrival.step === "trials") this.#screens.status(this.#strings.say("resumed"));
    this.#offerKeySwitch(page.keys);
    const shown = arrival.targets.map(({ html, source, text }) => html ?? text ?? `<img src="${source}">`);
    const detail = { max_queries: page.max_queries, num_queries: this.#run.given, puid: arrival.participant, targets: shown };
    document.dispatchEvent(new CustomEvent("salmon:arrived", { detail })); // for scripts of the experimenter
  }

  /** Load the files while the first screens are read; resolves with the targets that could not be had. */
  #preload() {
    return this.#stimuli.preload((done, all) => this.#screens.loading(done, all));
  }

  /** Nothing begins before the files are there; those that failed are tried again when the participant says so. */
  async #waitForFiles(loading) {
    this.#screens.waitForFiles();
    let failed = await loading;
    while (failed.length > 0) {
      for (const index of failed) this.#journal.note("load_failed", `target ${index}`);
      await this.#screens.next(this.#strings.say("loading"), [paragraph(this.#strings.say("load_failed"))], "try_again");
      this.#screens.waitForFiles();
      failed = await this.#preload();
    }
    this.#stimuli.loadRest((index) => this.#journal.note("load_failed", `target ${index}`));
  }

  async #answerAll() {
    const { page } = this.#arrival;
    const run = this.#run;
    const idle = this.#watchIdle();
    this.#trial.allow({ skip: page.skip_button, stop: page.max_queries <= 0 });
    let query = null;
    for (let asked = performance.now(); ; ) {
      this.#screens.progress(run.given, page.max_queries);
      await this.#outbox.fewerThan(MOST_UNSENT);
      query ??= await this.#noticeably(this.#nextReady());
      if (!query) break;
      const waited = performance.now() - asked;
      const decision = this.#trial.decision();
      await this.#trial.show(query);
      run.prefetch().then((ahead) => ahead && this.#stimuli.prepare(ahead)).catch(() => {});
      idle.begin();
      const { interrupted, skipped, stopped, timing, winner } = await decision;
      idle.end();
      if (interrupted) {
        await this.#rest();
        asked = performance.now();
        continue; // with the same query
      }
      if (stopped) break;
      if (skipped) {
        this.#journal.note("skip", "button");
        run.skip();
      } else {
        this.#outbox.put(run.answer(winner, { ...timing, query_wait_ms: Math.max(0, waited) }), this.#arrival.participant);
        document.dispatchEvent(new CustomEvent("salmon:answer", { detail: { given: run.given, rt_ms: timing.rt_ms, winner } }));
      }
      query = null;
      await this.#trial.gap();
      if (timing && timing.rt_ms < (page.warn_rt_ms ?? 0)) await this.#warn();
      asked = performance.now();
    }
    this.#screens.progress(run.given, page.max_queries);
    document.body.classList.add("no-more-queries");
    if (page.max_queries > 0) return { next: this.#after("trials") };
    await this.#outbox.flush();
    return this.#patiently(() => this.#api.step("trials"));
  }

  /** The next query with its stimuli in memory; null at the end. */
  async #nextReady() {
    const query = await this.#run.next();
    if (query) await this.#insist(() => this.#stimuli.prepare(query));
    return query;
  }

  /** The step that follows another in this experiment. */
  #after(step) {
    const { order } = this.#arrival.steps;
    return order[order.indexOf(step) + 1];
  }

  /** Try until it works, as long as trying again can help; meanwhile the page says why it waits. */
  async #patiently(request) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const reply = await request();
        if (attempt > 0) this.#screens.status("");
        return reply;
      } catch (failure) {
        if (!failure.again) throw failure;
        if (attempt > 0) this.#screens.status(this.#strings.failure(failure)); // one lost request is not worth a word
        await pause(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
      }
    }
  }

  /** Files that do not come are asked for until they do, when the participant says so. */
  async #insist(work) {
    for (;;) {
      try {
        return await work();
      } catch (missing) {
        this.#journal.note("load_failed", `target ${missing.target}`);
        await this.#screens.next(this.#strings.say("loading"), [paragraph(this.#strings.say("load_failed"))], "try_again");
      }
    }
  }

  async #noticeably(promise) {
    const timer = setTimeout(() => this.#screens.status(this.#strings.say("waiting")), NOTICE_MS);
    const value = await promise;
    clearTimeout(timer);
    if (byId("status").textContent === this.#strings.say("waiting")) this.#screens.status("");
    return value;
  }

  #watchIdle() {
    return new Idle({
      ask: () => this.#screens.status(this.#strings.say("still_there")),
      rest: () => this.#trial.interrupt(),
    });
  }

  async #rest() {
    this.#journal.note("paused");
    await this.#screens.next("", [paragraph(this.#strings.say("paused"))]);
    this.#screens.status("");
  }

  async #warn() {
    this.#journal.note("too_fast");
    await this.#screens.next("", [paragraph(this.#strings.say("too_fast"))]);
  }

  /** Keys that are single letters can be switched off: they get in the way of speech input. */
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

  async #waitForDevice() {
    const wanted = this.#arrival.page.devices.includes("desktop") ? "device_desktop" : "device_mobile";
    this.#screens.show({ heading: this.#arrival.page.title, parts: [paragraph(this.#strings.say(wanted))] });
    this.#journal.note("device", wanted);
    await new Promise((resolve) => {
      const check = (event) => (event.type === "keydown" && wanted === "device_desktop") || fits(this.#arrival.page.devices) ? resolve() : undefined;
      addEventListener("keydown", check);
      addEventListener("resize", check);
      matchMedia("(pointer: fine)").addEventListener("change", check);
    });
  }

  /** Tell other tabs of the same participant that this one goes on. */
  #announce({ participant, session }) {
    if (!("BroadcastChannel" in globalThis)) return; // the server tells the older tab at its next query
    const channel = new BroadcastChannel(`salmon ${location.pathname}`);
    channel.onmessage = ({ data }) => {
      if (data.participant === participant && data.session !== session) this.#elsewhere();
    };
    channel.postMessage({ participant, session });
  }

  async #elsewhere() {
    this.#trial?.close();
    this.#outbox.flush();
    await this.#screens.next("", [paragraph(this.#strings.say("elsewhere"))], "go_on_here");
    location.reload();
  }

  /** There is no way on: the participant declined, or the questions about the instructions were not answered rightly. */
  #leave(status) {
    const parts = [paragraph(this.#strings.say({ declined: "declined", screened_out: "screened_out" }[status] ?? "ended"))];
    const address = this.#arrival.steps.consent?.decline_url;
    if (status === "declined" && address) parts.push(make("a", { href: address, textContent: this.#strings.say("leave") }));
    this.#screens.show({ heading: this.#arrival.page.title, parts });
  }

  #stop(failure) {
    this.#screens.show({ heading: this.#strings.failure(failure) || this.#strings.say("server_trouble") });
    if (!failure.code) throw failure; // a mistake of ours belongs into the console
  }
}

new Page().open();
