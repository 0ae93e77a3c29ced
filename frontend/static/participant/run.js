// One participant's way through the trials, without a document: which query is shown, which one is ready, when it ends.

const PATIENCE_MS = 300; // nobody looks at an empty screen for longer, as long as there is a query in hand
const LATE = Symbol("late");

export class Run {
  #fetchQuery;
  #fetchSpare;
  #keep;
  #prepare;
  #spare = null;
  #unanswered;
  #again;
  #ahead = null;
  #given;
  #limit;
  #current = null;

  /**
   * `fetchQuery()` resolves to a query or to {done}; `limit` answers end the run (0: no end). `keep(queries)` is told
   * which queries are served and not answered; given back as `kept`, a page that was reloaded shows the same ones.
   * `prepare(query)` brings what is needed to show one, `fetchSpare()` a random query or null.
   */
  constructor({ fetchQuery, given, limit, kept = [], keep = () => {}, prepare = async () => {}, fetchSpare = async () => null }) {
    this.#fetchQuery = fetchQuery;
    this.#fetchSpare = fetchSpare;
    this.#prepare = prepare;
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

  /** The next query, or null when there is none left. One that is late comes a trial later: the spare one is shown. */
  async next() {
    if (this.complete) return null;
    const asked = this.#ahead ?? this.#ask();
    this.#ahead = null;
    const query = this.#spare ? await Promise.race([asked, late()]) : await asked;
    if (query === LATE) {
      this.#ahead = asked;
      return this.#showSpare();
    }
    if (query.done) return null;
    this.#current = query;
    return query;
  }

  /** Ask for exactly one query ahead, so that it is there when the answer is given; resolves with it or with null. */
  async prefetch() {
    if (!this.#ahead && this.#limit > 0 && this.#given + 1 >= this.#limit) return null;
    this.#ahead ??= this.#ask();
    const asked = this.#ahead;
    try {
      const query = await asked;
      return query.done ? null : query;
    } catch {
      if (this.#ahead === asked) this.#ahead = null; // next() asks again and shows what is wrong
      return null;
    }
  }

  /** Have a random query in hand for when the next one is late. */
  async stock() {
    if (this.#spare || (this.#limit > 0 && this.#given + 2 >= this.#limit)) return;
    const spare = await this.#fetchSpare().catch(() => null); // without one the page waits a little longer
    if (!spare?.token) return;
    await this.#prepare(spare).then(() => (this.#spare = spare), () => {});
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

  #showSpare() {
    this.#current = this.#spare;
    this.#spare = null;
    this.#unanswered.push(this.#current);
    this.#keep(this.#unanswered);
    return this.#current;
  }

  /** A query with what it needs; where that could not be had, whoever shows it tries again and says so. */
  #ask() {
    const asked = this.#askServer();
    asked.catch(() => {}); // whoever waits for it is told; perhaps nobody does yet
    return asked;
  }

  async #askServer() {
    const query = this.#again.shift() ?? (await this.#fetchQuery());
    if (query.done) return query;
    if (!this.#unanswered.includes(query)) {
      this.#unanswered.push(query);
      this.#keep(this.#unanswered);
    }
    await this.#prepare(query).catch(() => {});
    return query;
  }
}

const late = () => new Promise((resolve) => setTimeout(resolve, PATIENCE_MS, LATE));
