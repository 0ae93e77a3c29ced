// Answers on their way: kept until the server has confirmed each token, sent again with growing pauses.

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 30_000;

export class Outbox {
  #send;
  #storage;
  #name;
  #waiting;
  #sending = false;
  #pauseMs = FIRST_PAUSE_MS;
  #timer = null;

  /** `send(list)` resolves to the server's result for each token; `changed(waiting, failure)` is told what is on its way. */
  constructor({ send, storage, name, changed = () => {} }) {
    this.#send = send;
    this.#storage = storage;
    this.#name = name;
    this.changed = changed;
    this.#waiting = this.#restore();
  }

  get waiting() {
    return this.#waiting.length;
  }

  put(answer) {
    this.#waiting.push({ ...answer, sent_attempts: 0 });
    this.#keep();
    return this.flush();
  }

  /** Send what waits; resolves when nothing waits or the next attempt is scheduled. */
  async flush() {
    if (this.#sending) return;
    this.#sending = true;
    clearTimeout(this.#timer);
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting.slice(0, 50);
        for (const answer of batch) answer.sent_attempts += 1;
        const results = await this.#send(batch);
        const done = new Set(results.map((result) => result.token));
        this.#waiting = this.#waiting.filter((answer) => !done.has(answer.token));
        this.#keep();
        this.#pauseMs = FIRST_PAUSE_MS;
        this.changed(this.waiting, null);
      }
    } catch (failure) {
      this.#timer = setTimeout(() => this.flush(), this.#pauseMs);
      this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
      this.changed(this.waiting, failure);
    } finally {
      this.#sending = false;
    }
  }

  #keep() {
    try {
      this.#storage?.setItem(this.#name, JSON.stringify(this.#waiting));
    } catch {
      // Storage is full or switched off: the answers stay in memory.
    }
  }

  #restore() {
    try {
      return JSON.parse(this.#storage?.getItem(this.#name) ?? "[]");
    } catch {
      return [];
    }
  }
}
