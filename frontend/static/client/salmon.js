// The client for pages of other sites: arrives at an experiment, fetches queries ahead, and sends answers until they are stored.

import { AnswerStorage } from "../participant/answer_storage.js";
import { Api, repeat } from "../participant/api.js";
import { Journal } from "../participant/journal.js";
import { sendWhenLeaving } from "../participant/leaving.js";
import { Outbox } from "../participant/outbox.js";
import { Run } from "../participant/run.js";
import { Stimuli } from "../participant/stimuli.js";
import { Strings } from "../participant/strings.js";
import { browserSecret, TabStorage } from "../participant/tab_storage.js";

const MAX_UNSENT = 20;
const LOAD_ATTEMPTS = 5; // before a query is passed over because a file cannot be loaded
const RELOAD_MS = 4000;
const MOST_PASSED_OVER = 10; // queries in a row; then files are waited for again
const SIDES = ["left", "right"];
const TEXTS = {
  check_failed: "One of the last questions had an obvious answer, and another one was chosen. Please look at all three before you choose.",
  error_busy: "Many people are starting at this moment. This page will go on by itself.",
  head_name: "Target",
  left_name: "Left",
  load_failed: "A file of this study could not be loaded. This page will try again by itself.",
  offline: "There is no connection at the moment. Your answers are kept on this device and will be sent later.",
  right_name: "Right",
  server_trouble: "The server has a problem at the moment. This page will try again by itself.",
};

/**
 * A query to show: the indices of its three targets, and their elements, loaded and ready to be attached.
 * @typedef {{
 *   trial: number, head: number, left: number, right: number, elements: {head: HTMLElement, left: HTMLElement, right: HTMLElement},
 * }} ShownQuery
 *
 * What a page has measured of an answer; all of it may be left out.
 * @typedef {{rt_ms?: number, onset_client_ms?: number, input?: "mouse" | "touch" | "key" | "script" | ""}} Timing
 *
 * `parameters` say who takes part, as in the experiment's link; by default they are those of the page's own address.
 * `texts` replaces sentences that the client says itself. `onStatus(sentence)` is called with what a participant should know
 * about the connection, and with "" when it is over.
 * @typedef {{parameters?: Record<string, string>, texts?: Partial<typeof TEXTS>, onStatus?: (sentence: string) => void}} Options
 */

/** One participant's part in an experiment. Create it with `Salmon.open`. */
export class Salmon {
  #address;
  #api;
  #strings;
  #tabStorage;
  /** @type {import("../types").ArrivalReply} */
  #arrival;
  /** @type {Outbox} */
  #outbox;
  /** @type {Journal} */
  #journal;
  /** @type {Run} */
  #run;
  /** @type {Stimuli} */
  #stimuli;
  /** @type {import("../participant/api.js").Query | null} */
  #shown = null;
  /** @type {import("../types").FinishReply | null} */
  #finished = null;
  #out = false;
  #stopped = false;
  #blurred = false;
  #waitMs = 0;
  #passedOver = 0;
  /** @type {Set<number>} */
  #without = new Set();
  /** @type {(sentence: string) => void} */
  onStatus;

  /**
   * Arrive at the experiment with this address (`https://…/e/name/`), or go on where this participant was before.
   * @param {string} address
   * @param {Options} [options]
   * @returns {Promise<Salmon>}
   */
  static async open(address, { parameters = Object.fromEntries(new URLSearchParams(location.search)), ...options } = {}) {
    const study = new Salmon(address, options);
    await study.#openOutbox();
    await study.#arrive(parameters);
    return study;
  }

  /** @param {string} address @param {Options} options */
  constructor(address, { onStatus = () => {}, texts = {} }) {
    const { origin, pathname } = new URL(address, location.href);
    this.#address = `${origin}${pathname.replace(/\/*$/, "/")}`;
    this.#api = new Api(this.#address);
    this.#strings = new Strings({ ...TEXTS, ...texts });
    this.#tabStorage = new TabStorage(this.#address);
    this.onStatus = onStatus;
  }

  /** The participant's id, as in exported files. */
  get participant() {
    return this.#arrival.participant;
  }

  /** What the experiment's file says of the page: question, number of answers, keys, times. */
  get page() {
    return this.#arrival.page;
  }

  /** How many answers were given, in this and earlier visits. */
  get given() {
    return this.#run.given;
  }

  /** How many answers have not reached the server yet. */
  get unsent() {
    return this.#outbox.waiting;
  }

  /** The way out (`code`, `redirect`, `debrief`) once the server has stored every answer; null before. */
  get finished() {
    return this.#finished;
  }

  /**
   * Return the next query, with its files loaded; the same one until it is answered or skipped. Null means that there is none
   * left and that the server has stored every answer.
   * @returns {Promise<ShownQuery | null>}
   */
  async next() {
    const asked = performance.now();
    while (!this.#finished && !this.#shown) {
      await this.#outbox.waitUntilFewerThan(MAX_UNSENT);
      const query = this.#out || this.#stopped ? null : await this.#run.next();
      if (query && !(await this.#load(query))) {
        this.#journal.note("skip", "file");
        this.#run.skip();
      } else if (query) {
        this.#shown = query;
        this.#blurred = false;
        this.#waitMs = performance.now() - asked;
        this.#run.prefetch().then(() => this.#run.loadSpare());
      } else await this.#finish();
    }
    if (this.#finished) return null;
    const { head, left, right, trial } = this.#shown;
    const element = (place) => this.#stimuli.element(this.#shown[place], place, { copy: place !== "head" && this.#shown[place] === head });
    return { elements: { head: element("head"), left: element("left"), right: element("right") }, head, left, right, trial };
  }

  /**
   * Answer the query that `next` returned last: the target at this side is more like the head. The answer is kept on this
   * device until the server has stored it; nothing has to be waited for.
   * @param {"left" | "right"} side
   * @param {Timing} [timing]
   */
  answer(side, timing = {}) {
    if (!this.#shown) throw new Error("There is no query to answer: call next() first.");
    if (!SIDES.includes(side)) throw new Error(`An answer is "left" or "right", not ${JSON.stringify(side)}.`);
    const measured = { blur_during_trial: this.#blurred, viewport_h: innerHeight, viewport_w: innerWidth };
    const waits = { network_latency_ms: this.#shown.latency_ms ?? -1, query_wait_ms: Math.max(0, this.#waitMs) };
    const winner = this.#shown[side];
    this.#shown = null;
    this.#outbox.put(this.#run.answer(winner, { ...measured, ...waits, ...timing }), this.participant);
  }

  /** Leave the query that `next` returned last without an answer. */
  skip() {
    if (!this.#shown) throw new Error("There is no query to skip: call next() first.");
    this.#shown = null;
    this.#journal.note("skip", "button");
    this.#run.skip();
  }

  /** Ask nothing more, in an experiment without a number of answers (`max_queries: 0`): `next` then returns null. */
  stop() {
    this.#stopped = true;
  }

  /** Send the answers that an earlier visit left unsent, whoever arrives now. */
  async #openOutbox() {
    this.#outbox = new Outbox({
      onRefused: (answers) => {
        if (!this.#run) return;
        this.#run.removeAnswers(answers.filter((answer) => answer.owner === this.participant).length);
        this.#journal.note("answers_refused", answers.length);
      },
      onResult: (answer, result) => answer.owner === this.#arrival?.participant && this.#noteCheck(result),
      onSent: (failure) => this.onStatus(failure ? this.#strings.failure(failure) : ""),
      send: (list) => this.#api.answers(list),
      storage: (await AnswerStorage.open(this.#address)) ?? this.#tabStorage,
    });
    await this.#outbox.restore();
    await this.#outbox.flush(); // before arriving, or these answers would be counted twice
    sendWhenLeaving(this.#outbox, this.#api);
  }

  /** @param {Record<string, string>} parameters */
  async #arrive(parameters) {
    const arrival = await this.#retry(() => this.#api.arrive(parameters, { browser: browserSecret(), session: this.#tabStorage.session }));
    const others = arrival.steps.order.filter((step) => !["welcome", "trials", "debrief"].includes(step));
    if (others.length > 0) {
      throw new Error(
        `This experiment has steps that only its own page can show: ${others.join(", ")}. Take them out of its file and show them in your page, or show the experiment's page in a frame.`,
      );
    }
    this.#arrival = arrival;
    const sameParticipant = this.#tabStorage.participant === arrival.participant && arrival.resumed;
    this.#tabStorage.keepSession(arrival.session, arrival.participant);
    const targets = arrival.targets.map((target) => (target.source ? { ...target, source: new URL(target.source, this.#address).href } : target));
    this.#stimuli = new Stimuli(targets, this.#strings);
    this.#run = Run.after(arrival, {
      fetchQuery: async (number, skipped) => {
        const query = await this.#retry(() => this.#api.query(number, { skipped }));
        this.#noteCheck(query);
        return query;
      },
      fetchSpare: (number) => this.#api.query(number, { spare: true }),
      keep: (queries) => this.#tabStorage.keepQueries(queries),
      kept: sameParticipant ? this.#tabStorage.queries : [],
      prepare: (query) => {
        this.#stimuli.prefetch(query.soon ?? []);
        return this.#stimuli.prepare(query);
      },
      waiting: this.#outbox.waitingOf(arrival.participant),
    });
    this.#journal = new Journal({ send: (list) => this.#api.events(list), trial: () => this.#run.current?.trial ?? 0 });
    this.#journal.watch();
    addEventListener("blur", () => (this.#blurred = true));
    if (arrival.load_all) this.#stimuli.preload(() => {}); // what fails is loaded again when it is shown
    if (arrival.step === "out") this.#out = true;
  }

  /** Load the files of a query and resolve to whether they are there; after some attempts, the query is passed over. */
  async #load(query) {
    if (this.#passedOver >= MOST_PASSED_OVER) this.#without.clear();
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#stimuli.prepare(query);
        this.#passedOver = 0;
        if (attempt > 1) this.onStatus("");
        return true;
      } catch (missing) {
        this.#journal.note("load_failed", `target ${missing.target}`);
        if (this.#without.has(missing.target) || attempt === LOAD_ATTEMPTS) {
          this.#without.add(missing.target);
          this.#passedOver += 1;
          return false;
        }
        this.onStatus(this.#strings.say("load_failed"));
        await new Promise((resolve) => setTimeout(resolve, RELOAD_MS));
      }
    }
  }

  /** Wait until every answer is stored, and take the way out; where the server has fewer than it wants, more queries follow. */
  async #finish() {
    await this.#outbox.flush();
    await this.#outbox.waitUntilFewerThan(1);
    if (this.page.max_queries <= 0 && !this.#out) await this.#retry(() => this.#api.step("trials"));
    const reply = await this.#retry(() => this.#api.finish(this.#run.given, false));
    if (reply.complete || reply.out) {
      await this.#journal.flush();
      this.#journal.close();
      this.#finished = reply;
      this.#api.step("debrief").catch(() => {}); // a failure keeps nobody from leaving
    } else this.#run.resume(reply.missing);
  }

  /** Note what the server says of a check: to warn, or that the participant is out and the trials end. */
  #noteCheck({ out, warn }) {
    if (warn) this.onStatus(this.#strings.say("check_failed"));
    if (out) this.#out = true;
  }

  /**
   * Repeat a request while another attempt can help, and say why it takes long.
   * @template T
   * @param {() => Promise<T>} send
   * @returns {Promise<T>}
   */
  async #retry(send) {
    let failed = false;
    const reply = await repeat(send, (failure) => {
      failed = true;
      this.onStatus(this.#strings.failure(failure));
    });
    if (failed) this.onStatus("");
    return reply;
  }
}
