// Sends answers and keeps each until the server has confirmed its token; pauses between attempts grow.

const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
const BATCH = 25; // browsers send at most 64 kB for a page that closes

export class Outbox {
  #send;
  #storage;
  #waiting = [];
  #sending = null;
  #pauseMs = FIRST_PAUSE_MS;
  #timer = null;
  #failing = false;
  #listeners = new Set();

  /**
   * `send(list)` resolves to the server's result for each token. `onSent(failure)` is called after each attempt, with null
   * after a success, `onRefused(answers)` with answers that the server will never accept, and `onResult(answer, result)` with each.
   */
  /** @param {{send: (list: object[]) => Promise<import("../types").AnswerReply[]>, storage: any, onSent?: (failure: any) => void, onRefused?: (answers: any[]) => void, onResult?: (answer: any, result: any) => void}} parts */
  constructor({ send, storage, onSent = () => {}, onRefused = () => {}, onResult = () => {} }) {
    this.#send = send;
    this.#storage = storage;
    this.onSent = onSent;
    this.onRefused = onRefused;
    this.onResult = onResult;
  }

  /** Load answers that were not sent before the page was closed. */
  async restore() {
    this.#waiting = await this.#storage.all();
  }

  /** Whether the last attempt failed and answers are waiting. */
  get failing() {
    return this.#failing && this.waiting > 0;
  }

  get waiting() {
    return this.#waiting.length;
  }

  /** The newest waiting answers, as many as fit into the last request of a closing page. */
  get unsent() {
    return this.#waiting.slice(-BATCH).map((answer) => ({ ...withoutOwner(answer), sent_attempts: answer.sent_attempts + 1 }));
  }

  /** All waiting answers as text that participants can send to the experimenter. */
  get backup() {
    return JSON.stringify(this.#waiting.map(withoutOwner));
  }

  /** Return the turns of one participant's waiting answers: on a shared computer, others may have left theirs. */
  waitingOf(owner) {
    return this.#waiting.filter((answer) => answer.owner === owner).map((answer) => answer.trial);
  }

  /** Store an answer on this device, then send it. */
  async put(answer, owner) {
    const kept = { ...answer, owner, sent_attempts: 0 };
    this.#waiting.push(kept);
    await this.#storage.put(kept);
    return this.flush();
  }

  /** Send all waiting answers; resolves when none is left or the next attempt is scheduled. */
  flush() {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  /** Resolve when fewer than `most` answers are waiting. */
  async waitUntilFewerThan(most) {
    if (this.waiting < most) return;
    await new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
      const check = () => {
        if (this.waiting >= most) return;
        this.#listeners.delete(check);
        resolve();
      };
      this.#listeners.add(check);
    });
  }

  async #sendAll() {
    clearTimeout(this.#timer);
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting.slice(0, BATCH);
        for (const answer of batch) answer.sent_attempts += 1;
        await this.#removeDone(batch, await this.#send(batch.map(withoutOwner)));
      }
    } catch (failure) {
      this.#timer = setTimeout(() => this.flush(), this.#pauseMs);
      this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
      this.#failing = true;
      this.onSent(failure);
    }
  }

  /**
   * @param {any[]} batch
   * @param {import("../types").AnswerReply[]} results
   */
  async #removeDone(batch, results) {
    const byToken = new Map(results.map((result) => [result.token, result]));
    const done = batch.filter((answer) => byToken.has(answer.token));
    this.#waiting = this.#waiting.filter((answer) => !done.includes(answer));
    await this.#storage.remove(done.map((answer) => answer.token));
    this.#pauseMs = FIRST_PAUSE_MS;
    const refused = done.filter((answer) => byToken.get(answer.token).error);
    if (refused.length > 0) this.onRefused(refused);
    for (const answer of done) this.onResult(answer, byToken.get(answer.token));
    this.#failing = false;
    this.onSent(null);
    for (const listener of this.#listeners) listener();
  }
}

function withoutOwner({ owner, trial, ...answer }) {
  return answer;
}
