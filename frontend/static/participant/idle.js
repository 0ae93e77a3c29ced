// Somebody who has not answered for a while: asked after a minute whether they are there, after ten the study pauses.

const ASK_MS = 60_000;
const PAUSE_MS = 600_000;

export class Idle {
  #timers = [];

  /** `ask()` and `rest()` are called once each after every `begin`, unless `end` comes first. */
  constructor({ ask, rest }) {
    this.ask = ask;
    this.rest = rest;
  }

  begin() {
    this.end();
    this.#timers = [setTimeout(this.ask, ASK_MS), setTimeout(this.rest, PAUSE_MS)];
  }

  end() {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
  }
}
