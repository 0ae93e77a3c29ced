// The state of one participant's trials, without a document: the current query, the next one, and when the run ends.

const MAX_WAIT_MS = 300; // for the next query, if a spare one is ready
const LATE = Symbol("late");
// The next query is asked for as late as the participant's own pace allows, because later queries have seen more answers.
const KNOWN = 8; // so many of the last trials and requests tell the pace
const MARGIN_MS = 100;

/** @typedef {import("./api.js").Query} Query */

export class Run {
  /** @type {(number: number, skipped: number[]) => Promise<Query>} */
  #fetchQuery;
  /** @type {(number: number) => Promise<Query>} */
  #fetchSpare;
  #open;
  #next;
  #skipped = [];
  #keep;
  #prepare;
  /** @type {Query | null} */
  #spare = null;
  /** @type {Query[]} */
  #unanswered;
  /** @type {Query[]} */
  #kept;
  #ahead = null;
  #given;
  #limit;
  /** @type {Set<number>} */
  #taken; // turns whose query was here: their answers may still be on their way
  /** @type {Query | null} */
  #current = null;
  #shownAt = 0;
  /** @type {number[]} */
  #decisionsMs = [];
  /** @type {number[]} */
  #requestsMs = [];

  /**
   * `fetchQuery(number, skipped)` resolves to the query of a turn, to {over} or to {done}; the run ends after `limit` answers
   * (0: never). `numbers` are the turns that the server knows: those that are `open` are asked for before the `next` one.
   * `keep(queries)` is called with the served but unanswered queries; a reloaded page passes them as `kept` and shows them
   * again. `prepare(query)` loads what a query needs, and `fetchSpare(number)` resolves to a random query or to null.
   * @param {{
   *   fetchQuery: (number: number, skipped: number[]) => Promise<Query>, fetchSpare?: (number: number) => Promise<Query>,
   *   given: number, limit: number, numbers?: import("../types").TurnNumbers, kept?: Query[],
   *   keep?: (queries: Query[]) => void, prepare?: (query: Query) => Promise<any>,
   * }} parts
   */
  constructor({
    fetchQuery,
    given,
    limit,
    numbers = { next: 1, open: [] },
    kept = [],
    keep = () => {},
    prepare = async () => {},
    fetchSpare = async () => null,
  }) {
    this.#fetchQuery = fetchQuery;
    this.#next = numbers.next;
    this.#fetchSpare = fetchSpare;
    this.#prepare = prepare;
    this.#given = given;
    this.#limit = limit;
    this.#unanswered = kept.filter((query) => numbers.open.includes(query.trial) || query.trial >= numbers.next);
    this.#kept = [...this.#unanswered];
    this.#open = numbers.open.filter((number) => !this.#kept.some((query) => query.trial === number));
    this.#taken = new Set(this.#kept.map((query) => query.trial));
    this.#keep = keep;
  }

  /**
   * Return the run of somebody who has arrived. `waiting` are the turns whose answers are still on this device: what the
   * server has already, although its reply was lost, is not counted twice.
   * @param {import("../types").ArrivalReply} arrival
   * @param {{
   *   waiting: number[], kept: Query[], keep: (queries: Query[]) => void, prepare: (query: Query) => Promise<any>,
   *   fetchQuery: (number: number, skipped: number[]) => Promise<Query>, fetchSpare: (number: number) => Promise<Query>,
   * }} parts
   */
  static after({ answers, numbers, page }, { waiting, ...parts }) {
    const unknown = waiting.filter((number) => numbers.open.includes(number));
    const open = numbers.open.filter((number) => !unknown.includes(number));
    return new Run({ ...parts, given: answers + unknown.length, limit: page.max_queries, numbers: { ...numbers, open } });
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
    return this.#show(query);
  }

  /**
   * Request exactly one query ahead, just in time for the fastest answer to expect; resolves to it, or to null where there is
   * none or where the answer came first.
   */
  async prefetch() {
    if (!this.#ahead && this.#limit > 0 && this.#given + 1 >= this.#limit) return null;
    const shown = this.#current;
    if (!this.#ahead && this.#spareTimeMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#spareTimeMs));
    if (this.#current !== shown) return null; // next() has asked
    this.#ahead ??= this.#request();
    const asked = this.#ahead;
    try {
      const query = await asked;
      if (!query.done) return query;
      if (this.#ahead === asked) this.#ahead = null;
      return null;
    } catch {
      if (this.#ahead === asked) this.#ahead = null; // next() tries again and shows the error
      return null;
    }
  }

  /** Load a random query to show if the next one is late. */
  async loadSpare() {
    if (this.#spare || (this.#limit > 0 && this.#given + 2 >= this.#limit)) return;
    const number = this.#next++; // a turn that is open may have a query that must be shown
    const spare = await this.#fetchSpare(number).catch(() => null); // without a spare query the page waits longer
    if (!spare?.token) {
      this.#open.push(number);
      return;
    }
    await this.#prepare(spare).then(() => (this.#spare = spare), () => {});
  }

  /** Return the answer to the current query, or null if it was answered already. */
  answer(winner, timing) {
    if (!this.#current) return null;
    const answer = { token: this.#current.token, trial: this.#current.trial, winner, ...timing };
    this.#decisionsMs = [...this.#decisionsMs, performance.now() - this.#shownAt].slice(-KNOWN);
    this.#drop();
    this.#given += 1;
    return answer;
  }

  /** Drop the current query without an answer; the next request tells the server. */
  skip() {
    if (this.#current) this.#skipped.push(this.#current.trial);
    this.#drop();
  }

  /** Subtract answers that the server refused, so that as many more queries are shown. */
  removeAnswers(count) {
    this.#given -= count;
  }

  /** Let the run go on for so many trials, although it had come to its end: the server has no answers of theirs. */
  resume(missing) {
    this.#given = Math.max(this.#given, this.#limit) - missing;
    this.#taken = new Set(this.#unanswered.map((query) => query.trial));
  }

  /** How long the next query need not be asked for: not at all until the pace is known. */
  get #spareTimeMs() {
    if (this.#decisionsMs.length < KNOWN) return 0;
    return Math.min(...this.#decisionsMs) - 2 * Math.max(...this.#requestsMs) - MARGIN_MS;
  }

  #show(query) {
    this.#current = query;
    this.#shownAt = performance.now();
    return query;
  }

  #showSpare() {
    const query = this.#spare;
    this.#spare = null;
    this.#unanswered.push(query);
    this.#keep(this.#unanswered);
    return this.#show(query);
  }

  #drop() {
    this.#unanswered = this.#unanswered.filter((query) => query !== this.#current);
    this.#current = null;
    this.#keep(this.#unanswered);
  }

  #takeNumber() {
    return this.#open.shift() ?? this.#next++;
  }

  /**
   * Return the query of the first turn that is not over. A turn whose request failed is asked for again. The server may give
   * the query of another turn, before which the trials must not end: there is nothing else to ask where that one was here.
   */
  async #ask() {
    for (;;) {
      const number = this.#takeNumber();
      const skipped = [...this.#skipped];
      try {
        const query = await this.#fetchQuery(number, skipped);
        this.#skipped = this.#skipped.filter((turn) => !skipped.includes(turn));
        if (query.over) continue;
        if (query.token && query.trial !== number) {
          this.#open = [...this.#open.filter((turn) => turn !== query.trial), number];
          if (this.#taken.has(query.trial)) return { ...query, done: true };
        }
        this.#taken.add(query.trial);
        return query;
      } catch (failure) {
        this.#open.unshift(number);
        throw failure;
      }
    }
  }

  /** Return a promise of a query; the caller that awaits it handles its failure. */
  #request() {
    const asked = this.#fetch();
    asked.catch(() => {}); // nobody may be waiting for it yet
    return asked;
  }

  async #fetch() {
    const asked = performance.now();
    const query = this.#kept.shift() ?? (await this.#ask());
    if (query.done) return query;
    if (!this.#unanswered.includes(query)) {
      this.#unanswered.push(query);
      this.#keep(this.#unanswered);
    }
    await this.#prepare(query).catch(() => {});
    this.#requestsMs = [...this.#requestsMs, performance.now() - asked].slice(-KNOWN);
    return query;
  }
}

const waitUntilLate = () => new Promise((resolve) => setTimeout(resolve, MAX_WAIT_MS, LATE));
