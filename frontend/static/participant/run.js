// One participant's way through the trials, without a document: which query is shown, which one is ready, when it ends.

export class Run {
  #fetchQuery;
  #ahead = null;
  #given;
  #limit;
  #current = null;

  /** `fetchQuery()` resolves to a query or to {done}; `limit` answers end the run (0: no end). */
  constructor({ fetchQuery, given, limit }) {
    this.#fetchQuery = fetchQuery;
    this.#given = given;
    this.#limit = limit;
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

  /** The next query, or null when there is none left. Exactly one is fetched ahead while another is on the screen. */
  async next() {
    if (this.complete) return null;
    const asked = this.#ahead ?? this.#fetchQuery();
    this.#ahead = null;
    const query = await asked;
    if (query.done) return null;
    this.#current = query;
    return query;
  }

  /** Ask for the query after this one, so that it is there when the answer is given. */
  prefetch() {
    if (this.#ahead || (this.#limit > 0 && this.#given + 1 >= this.#limit)) return;
    this.#ahead = this.#fetchQuery();
    this.#ahead.catch(() => {
      this.#ahead = null; // next() asks again and shows what is wrong
    });
  }

  /** The answer to the current query; null for a second answer to the same one. */
  answer(winner, timing) {
    if (!this.#current) return null;
    const answer = { token: this.#current.token, winner, ...timing };
    this.#current = null;
    this.#given += 1;
    return answer;
  }

  /** Leave the current query without an answer. */
  skip() {
    const skipped = this.#current;
    this.#current = null;
    return skipped;
  }
}
