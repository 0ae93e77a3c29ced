// The participant page: arrive, take the steps, answer query after query, finish. What belongs together is wired here.

import { Api } from "./api.js";
import { dress } from "./appearance.js";
import { pass } from "./gate.js";
import { Idle } from "./idle.js";
import { Journal } from "./journal.js";
import { Memory } from "./memory.js";
import { Outbox } from "./outbox.js";
import { Patience } from "./patience.js";
import { Run } from "./run.js";
import { make, paragraph, Screens } from "./screens.js";
import { Shelf } from "./shelf.js";
import { Steps } from "./steps.js";
import { Stimuli } from "./stimuli.js";
import { keyLabel, Strings } from "./strings.js";
import { Trial } from "./trial.js";

const MOST_UNSENT = 20;

const byId = (id) => document.getElementById(id);

class Page {
  #setting = JSON.parse(byId("setting").textContent);
  #strings = new Strings(this.#setting.strings);
  #screens = new Screens(this.#strings);
  #api = new Api(location.pathname);
  #memory = new Memory(location.pathname);
  #patience = new Patience({
    missed: (target) => this.#journal.note("load_failed", `target ${target}`),
    screens: this.#screens,
    strings: this.#strings,
  });
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
      else await this.#stop(failure);
    }
  }

  async #walk() {
    await this.#openOutbox();
    await this.#arrive();
    const { review } = this.#arrival;
    let { status, step } = this.#arrival;
    const goesOn = step !== "out" && step !== "debrief";
    if (goesOn) await pass({ arrival: this.#arrival, journal: this.#journal, screens: this.#screens, strings: this.#strings });
    const loading = this.#stimuli.hasFiles && goesOn ? this.#preload() : [];
    if (review && goesOn) await this.#steps.readInstructions(this.#strings.say("review"));
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
    await this.#outbox.flush(); // before arriving: what the server counts by then must not be counted here too
    addEventListener("online", () => this.#outbox.flush());
    const sendNow = () => this.#outbox.waiting > 0 && this.#api.beacon(this.#outbox.unsent);
    addEventListener("pagehide", sendNow);
    addEventListener("visibilitychange", () => document.visibilityState === "hidden" && sendNow());
    addEventListener("beforeunload", (event) => this.#outbox.failing && event.preventDefault());
  }

  async #arrive() {
    const parameters = Object.fromEntries(new URLSearchParams(location.search));
    const arrival = await this.#patience.patiently(() => this.#api.arrive(parameters, this.#memory.session));
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
      fetchQuery: () => this.#patience.patiently(() => this.#api.query()),
      fetchSpare: () => this.#api.query({ spare: true }),
      given: arrival.answers + this.#outbox.waitingOf(arrival.participant),
      keep: (queries) => this.#memory.keepQueries(queries),
      kept: sameParticipant ? this.#memory.queries : [],
      limit: page.max_queries,
      prepare: (query) => {
        const shown = this.#stimuli.prepare(query);
        this.#stimuli.anticipate(query.soon ?? []);
        return shown;
      },
    });
    this.#journal = new Journal({ send: (list) => this.#api.events(list), trial: () => this.#run.current?.trial ?? 0 });
    this.#journal.watch();
    this.#steps = new Steps({
      api: this.#api,
      arrival,
      missing: (count) => {
        this.#run.lost(count);
        return this.#answerAll();
      },
      patience: this.#patience,
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

  /** Load the files while the first screens are read: all, or those of the practice and the first trials where they are many. */
  #preload() {
    const { load_all: all, soon, steps } = this.#arrival;
    const practised = (steps.practice?.queries ?? []).flatMap(({ head, left, right }) => [head, left, right]);
    return this.#stimuli.preload((done, files) => this.#screens.loading(done, files), all ? undefined : new Set([...practised, ...soon]));
  }

  /** Nothing begins before the files are there; those that failed are tried again when the participant says so. */
  async #waitForFiles(loading) {
    this.#screens.waitForFiles();
    let failed = await loading;
    while (failed.length > 0) {
      for (const index of failed) this.#journal.note("load_failed", `target ${index}`);
      await this.#patience.askAgain();
      this.#screens.waitForFiles();
      failed = await this.#preload();
    }
  }

  async #answerAll() {
    const { page } = this.#arrival;
    const run = this.#run;
    const idle = this.#watchIdle();
    this.#trial.allow({ skip: page.skip_button, stop: page.max_queries <= 0 });
    let query = null;
    for (let asked = performance.now(); ; ) {
      this.#screens.progress(run.given, page.max_queries);
      if (this.#outbox.waiting >= MOST_UNSENT) await this.#holdOn();
      query ??= await this.#patience.noticeably(this.#nextReady());
      if (!query) break;
      const waited = performance.now() - asked;
      if (query.spare) this.#journal.note("spare", Math.round(waited));
      const decision = this.#trial.decision();
      await this.#trial.show(query);
      run.prefetch().then(() => run.stock());
      idle.begin();
      const { interrupted, skipped, stopped, timing, winner } = await decision;
      idle.end();
      this.#screens.status("", { instead: this.#strings.say("still_there") });
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
        const waits = { network_latency_ms: query.latency_ms ?? -1, query_wait_ms: Math.max(0, waited) };
        this.#outbox.put(run.answer(winner, { ...timing, ...waits }), this.#arrival.participant);
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
    return this.#patience.patiently(() => this.#api.step("trials"));
  }

  /** The next query with its stimuli in memory; null at the end. */
  async #nextReady() {
    const query = await this.#run.next();
    if (query) await this.#patience.insist(() => this.#stimuli.prepare(query));
    return query;
  }

  /** The step that follows another in this experiment. */
  #after(step) {
    const { order } = this.#arrival.steps;
    return order[order.indexOf(step) + 1];
  }

  #watchIdle() {
    return new Idle({
      ask: () => this.#screens.status(this.#strings.say("still_there")),
      rest: () => this.#trial.interrupt(),
    });
  }

  /** So many answers wait here that no more are asked for, until some have been sent. */
  async #holdOn() {
    this.#screens.show({ heading: this.#strings.say("saving"), parts: [paragraph(this.#strings.say("saving_long"))] });
    await this.#outbox.fewerThan(MOST_UNSENT);
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

  /** The page cannot go on by itself; what stopped it may be over when it is opened again. */
  async #stop(failure) {
    this.#trial?.close();
    const sentence = failure.code ? this.#strings.failure(failure) : this.#strings.say("server_trouble");
    const shown = this.#screens.next("", [paragraph(sentence)], "try_again");
    if (!failure.code) throw failure; // a mistake of ours belongs into the console
    await shown;
    location.reload();
  }
}

new Page().open();
