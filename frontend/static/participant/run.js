// One participant's way through the trials, without a document: which query is shown, which one is ready, when it ends.

export class Run {
  #fetchQuery;
  #keep;
  #unanswered;
  #again;
  #ahead = null;
  #given;
  #limit;
  #current = null;

  /**
   * `fetchQuery()` resolves to a query or to {done}; `limit` answers end the run (0: no end). `keep(queries)` is told
   * which queries are served and not answered; given back as `kept`, a page that was reloaded shows the same ones.
   */
  constructor({ fetchQuery, given, limit, kept = [], keep = () => {} }) {
    this.#fetchQuery = fetchQuery;
    this.#given = given;
    this.#limit = limit;
    this.#unanswered = [...kept];
    this.#again = [...kept];
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

  /** The next query, or null when there is none left. */
  async next() {
    if (this.complete) return null;
    const asked = this.#ahead ?? this.#ask();
    this.#ahead = null;
    const query = await asked;
    if (query.done) return null;
    this.#current = query;
    return query;
  }

  /** Ask for exactly one query ahead, so that it is there when the answer is given; resolves with it or with null. */
  async prefetch() {
    if (this.#ahead || (this.#limit > 0 && this.#given + 1 >= this.#limit)) return null;
    const asked = this.#ask();
    this.#ahead = asked;
    try {
      const query = await asked;
      return query.done ? null : query;
    } catch {
      if (this.#ahead === asked) this.#ahead = null; // next() asks again and shows what is wrong
      return null;
    }
  }

  /** The answer to the current query; null for a second answer to the same one. */
  answer(winner, timing) {
    if (!this.#current) return null;
    const answer = { token: this.#current.token, winner, ...timing };
    this.skip();
    this.#given += 1;
    return answer;
  }

  /** Leave the current query without an answer. */
  skip() {
    this.#unanswered = this.#unanswered.filter((query) => query !== this.#current);
    this.#current = null;
    this.#keep(this.#unanswered);
  }

  /** Answers that the server will never take do not count: as many queries more are asked. */
  lost(count) {
    this.#given -= count;
  }

  async #ask() {
    if (this.#again.length > 0) return this.#again.shift();
    const query = await this.#fetchQuery();
    if (!query.done) {
      this.#unanswered.push(query);
      this.#keep(this.#unanswered);
    }
    return query;
  }
}
