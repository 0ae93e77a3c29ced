// The state of one participant's trials, without a document: the current query, the next one, and when the run ends.

const MAX_WAIT_MS = 300; // for the next query, if a spare one is ready
const LATE = Symbol("late");

export class Run {
  #fetchQuery;
  #fetchSpare;
  #keep;
  #prepare;
  #spare = null;
  #unanswered;
  #kept;
  #ahead = null;
  #given;
  #limit;
  #current = null;

  /**
   * `fetchQuery()` resolves to a query or to {done}; the run ends after `limit` answers (0: never). `keep(queries)` is called
   * with the served but unanswered queries; a reloaded page passes them as `kept` and shows them again.
   * `prepare(query)` loads what a query needs, and `fetchSpare()` resolves to a random query or to null.
   */
  constructor({ fetchQuery, given, limit, kept = [], keep = () => {}, prepare = async () => {}, fetchSpare = async () => null }) {
    this.#fetchQuery = fetchQuery;
    this.#fetchSpare = fetchSpare;
    this.#prepare = prepare;
    this.#given = given;
    this.#limit = limit;
    this.#unanswered = [...kept];
    this.#kept = [...kept];
    this.#keep = keep;
  }

  get given() {
    return this.#given;
  }

  get current() {
    return this.#current;
  }

  get complete() {
    return this.#limit > 0 && this.#given >= this.#limit;
  }

  /** Return the next query, or null at the end. If it is late, return the spare query; the late one comes a trial later. */
  async next() {
    if (this.complete) return null;
    const asked = this.#ahead ?? this.#request();
    this.#ahead = null;
    const query = this.#spare ? await Promise.race([asked, waitUntilLate()]) : await asked;
    if (query === LATE) {
      this.#ahead = asked;
      return this.#showSpare();
    }
    if (query.done) return null;
    this.#current = query;
    return query;
  }

  /** Request exactly one query ahead, so that it is there after the next answer; resolves to it or to null. */
  async prefetch() {
    if (!this.#ahead && this.#limit > 0 && this.#given + 1 >= this.#limit) return null;
    this.#ahead ??= this.#request();
    const asked = this.#ahead;
    try {
      const query = await asked;
      return query.done ? null : query;
    } catch {
      if (this.#ahead === asked) this.#ahead = null; // next() tries again and shows the error
      return null;
    }
  }

  /** Load a random query to show if the next one is late. */
  async loadSpare() {
    if (this.#spare || (this.#limit > 0 && this.#given + 2 >= this.#limit)) return;
    const spare = await this.#fetchSpare().catch(() => null); // without a spare query the page waits longer
    if (!spare?.token) return;
    await this.#prepare(spare).then(() => (this.#spare = spare), () => {});
  }

  /** Return the answer to the current query, or null if it was answered already. */
  answer(winner, timing) {
    if (!this.#current) return null;
    const answer = { token: this.#current.token, winner, ...timing };
    this.skip();
    this.#given += 1;
    return answer;
  }

  /** Drop the current query without an answer. */
  skip() {
    this.#unanswered = this.#unanswered.filter((query) => query !== this.#current);
    this.#current = null;
    this.#keep(this.#unanswered);
  }

  /** Subtract answers that the server refused, so that as many more queries are shown. */
  removeAnswers(count) {
    this.#given -= count;
  }

  #showSpare() {
    this.#current = this.#spare;
    this.#spare = null;
    this.#unanswered.push(this.#current);
    this.#keep(this.#unanswered);
    return this.#current;
  }

  /** Return a promise of a query; the caller that awaits it handles its failure. */
  #request() {
    const asked = this.#fetch();
    asked.catch(() => {}); // nobody may be waiting for it yet
    return asked;
  }

  async #fetch() {
    const query = this.#kept.shift() ?? (await this.#fetchQuery());
    if (query.done) return query;
    if (!this.#unanswered.includes(query)) {
      this.#unanswered.push(query);
      this.#keep(this.#unanswered);
    }
    await this.#prepare(query).catch(() => {});
    return query;
  }
}

const waitUntilLate = () => new Promise((resolve) => setTimeout(resolve, MAX_WAIT_MS, LATE));
