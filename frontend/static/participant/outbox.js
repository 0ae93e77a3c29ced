// Answers on their way: kept until the server has confirmed each token, sent again with growing pauses.

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 30_000;
const BATCH = 25; // a browser sends no more than 64 kB for a page that goes away

export class Outbox {
  #send;
  #shelf;
  #waiting = [];
  #sending = null;
  #pauseMs = FIRST_PAUSE_MS;
  #timer = null;
  #failing = false;
  #listeners = new Set();

  /**
   * `send(list)` resolves to the server's result for each token. `changed(failure)` is told how sending went (null:
   * well), `refused(answers)` what the server will never take.
   */
  constructor({ send, shelf, changed = () => {}, refused = () => {} }) {
    this.#send = send;
    this.#shelf = shelf;
    this.changed = changed;
    this.refused = refused;
  }

  /** Take up what an earlier opening of the page could not send. */
  async restore() {
    this.#waiting = await this.#shelf.all();
  }

  /** Whether the last attempt to send did not succeed, and something waits for the next one. */
  get failing() {
    return this.#failing && this.waiting > 0;
  }

  get waiting() {
    return this.#waiting.length;
  }

  /** The newest answers that wait, as they are sent: as many as fit into a last request. */
  get unsent() {
    return this.#waiting.slice(-BATCH).map((answer) => ({ ...withoutOwner(answer), sent_attempts: answer.sent_attempts + 1 }));
  }

  /** Everything that waits, as text that can be sent to the people who run the study. */
  get backup() {
    return JSON.stringify(this.#waiting.map(withoutOwner));
  }

  /** How many of one participant's answers wait: in a laboratory others may have left theirs on the same machine. */
  waitingOf(owner) {
    return this.#waiting.filter((answer) => answer.owner === owner).length;
  }

  /** Keep an answer on this device, then send it. */
  async put(answer, owner) {
    const kept = { ...answer, owner, sent_attempts: 0 };
    this.#waiting.push(kept);
    await this.#shelf.put(kept);
    return this.flush();
  }

  /** Send what waits; resolves when nothing waits or the next attempt is scheduled. */
  flush() {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  /** Resolves when fewer than `most` answers wait. */
  async fewerThan(most) {
    if (this.waiting < most) return;
    await new Promise((resolve) => {
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
        await this.#settle(batch, await this.#send(batch.map(withoutOwner)));
      }
    } catch (failure) {
      this.#timer = setTimeout(() => this.flush(), this.#pauseMs);
      this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
      this.#failing = true;
      this.changed(failure);
    }
  }

  async #settle(batch, results) {
    const byToken = new Map(results.map((result) => [result.token, result]));
    const done = batch.filter((answer) => byToken.has(answer.token));
    this.#waiting = this.#waiting.filter((answer) => !done.includes(answer));
    await this.#shelf.remove(done.map((answer) => answer.token));
    this.#pauseMs = FIRST_PAUSE_MS;
    const refused = done.filter((answer) => byToken.get(answer.token).error);
    if (refused.length > 0) this.refused(refused);
    this.#failing = false;
    this.changed(null);
    for (const listener of this.#listeners) listener();
  }
}

function withoutOwner({ owner, ...answer }) {
  return answer;
}
