// Requests of the participant page. Each returns a value or throws a Failure that says whether to try again.

const TIMEOUT_MS = 10_000;
const RETRY_MS = [500, 1000, 2000, 4000];

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Failure extends Error {
  constructor(error, { retryable }) {
    super(error.message);
    this.code = error.code;
    this.hint = error.hint ?? "";
    this.problems = error.problems ?? [];
    this.retryable = retryable;
  }
}

/**
 * Repeat a request until it succeeds, as long as another attempt can help; `onFailure(failure, attempt)` is called before each pause.
 * @template T
 * @param {() => Promise<T>} send
 * @param {(failure: Failure, attempt: number) => void} [onFailure]
 * @returns {Promise<T>}
 */
export async function repeat(send, onFailure = () => {}) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await send();
    } catch (failure) {
      if (!failure.retryable) throw failure;
      onFailure(failure, attempt);
      const spread = failure.code === "busy" ? 0.5 + Math.random() : 1; // not all at once
      await pause(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] * spread);
    }
  }
}

/** @typedef {import("../types").QueryReply & {latency_ms: number, spare: boolean}} Query */

export class Api {
  #base;
  #session = null;

  constructor(base) {
    this.#base = base;
  }

  /** @returns {Promise<import("../types").ArrivalReply>} */
  async arrive(parameters, { browser, session }) {
    const reply = await this.#post("arrive", { browser, parameters, session });
    this.#session = reply.session;
    return reply;
  }

  /**
   * @param {string} name
   * @param {import("../types").StepBody} body
   * @returns {Promise<import("../types").StepReply>}
   */
  step(name, body = {}) {
    return this.#post(`steps/${name}`, body);
  }

  /**
   * Return the query of a turn and its latency: the same one each time until it is answered, {over} where it was, or {done}
   * at the end. A `spare` query is random, or {none}. The numbers in `skipped` are not asked again.
   * @returns {Promise<Query>}
   */
  async query(number, { skipped = [], spare = false } = {}) {
    const since = performance.now();
    const parameters = new URLSearchParams(spare ? { number, spare: "true" } : { number });
    for (const turn of skipped) parameters.append("skipped", turn);
    const query = await this.#send(`query?${parameters}`, { method: "GET" });
    return { ...query, latency_ms: performance.now() - since, spare };
  }

  /** @returns {Promise<import("../types").AnswerReply[]>} */
  async answers(list) {
    return (await this.#post("answers", list, { keepalive: true })).results;
  }

  /** Send answers while the page closes. Nobody reads the reply; tokens make sending an answer twice harmless. */
  beacon(list) {
    return navigator.sendBeacon(`${this.#base}answers`, JSON.stringify(list));
  }

  /**
   * @param {import("../types").EventBody[]} list
   * @returns {Promise<import("../types").StoredReply>}
   */
  events(list) {
    return this.#post("events", list, { keepalive: true });
  }

  /** Skip everything up to the last questions, in a try-out. */
  skipToEnd() {
    return this.#post("skip", {});
  }

  /** @returns {Promise<import("../types").WithdrawnReply>} */
  withdraw() {
    return this.#post("withdraw", {});
  }

  /** @returns {Promise<import("../types").FinishReply>} */
  finish(given, incomplete) {
    return this.#post("finish", { given, incomplete });
  }

  #post(path, body, options = {}) {
    return this.#send(path, {
      ...options,
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
      method: "POST",
    });
  }

  async #send(path, options) {
    const headers = { ...options.headers };
    if (this.#session) headers["X-Salmon-Session"] = this.#session;
    let response;
    let reply;
    try {
      response = await fetch(this.#base + path, { ...options, headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
      reply = await response.json();
    } catch {
      const code = response && !response.ok ? "server" : "offline"; // an incomplete reply counts as none
      throw new Failure({ code, message: "" }, { retryable: true });
    }
    if (response.ok || Array.isArray(reply.results)) return reply;
    const error = reply.error ?? { code: "server", message: "" };
    throw new Failure(error, { retryable: response.status >= 500 || response.status === 429 });
  }
}
