// Waiting for the network: trying again as long as that can help, and saying why the page waits.

import { paragraph } from "./screens.js";

const RETRY_MS = [500, 1000, 2000, 4000];
const NOTICE_MS = 300; // a shorter wait is not worth a word

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Patience {
  #screens;
  #strings;

  /** `missed(target)` is told of files that do not come. */
  constructor({ missed, screens, strings }) {
    this.missed = missed;
    this.#screens = screens;
    this.#strings = strings;
  }

  /** Try until it works, as long as trying again can help; meanwhile the page says why it waits. */
  async patiently(request) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const reply = await request();
        if (attempt > 0) this.#screens.status("");
        return reply;
      } catch (failure) {
        if (!failure.again) throw failure;
        if (attempt > 0) this.#screens.status(this.#strings.failure(failure)); // one lost request is not worth a word
        await pause(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
      }
    }
  }

  /** Files that do not come are asked for until they do, when the participant says so. */
  async insist(work) {
    for (;;) {
      try {
        return await work();
      } catch (missing) {
        this.missed(missing.target);
        await this.askAgain();
      }
    }
  }

  /** Files could not be loaded: resolves when the participant wants to try again. */
  askAgain() {
    const { say } = this.#strings;
    return this.#screens.next(say("loading"), [paragraph(say("load_failed"))], "try_again");
  }

  /** What a promise resolves to; a wait that is long enough to be noticed gets a word. */
  async noticeably(promise) {
    const waiting = this.#strings.say("waiting");
    const timer = setTimeout(() => this.#screens.status(waiting), NOTICE_MS);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#screens.status("", { instead: waiting });
    }
  }
}
