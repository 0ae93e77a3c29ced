// Tries requests and files again after a failure, and tells the participant why the page waits.

import { repeat } from "./api.js";
import { paragraph } from "./screens.js";

const NOTICE_MS = 300; // shorter waits are not announced

export class Retries {
  #screens;
  #strings;

  /** `onMissingFile(target)` is called for each file that could not be loaded. */
  constructor({ onMissingFile, screens, strings }) {
    this.onMissingFile = onMissingFile;
    this.#screens = screens;
    this.#strings = strings;
  }

  /**
   * Repeat a request until it succeeds, as long as another attempt can help; show the reason meanwhile.
   * @template T
   * @param {() => Promise<T>} send
   * @returns {Promise<T>}
   */
  async request(send) {
    let failed = false;
    const reply = await repeat(send, (failure, attempt) => {
      failed = true;
      // A single lost request is not announced.
      if (attempt > 0 || failure.code === "busy") this.#screens.status(this.#strings.failure(failure));
    });
    if (failed) this.#screens.status("");
    return reply;
  }

  /** Load files; after a failure, try again whenever the participant asks for it. */
  async loadFiles(load) {
    for (;;) {
      try {
        return await load();
      } catch (missing) {
        this.onMissingFile(missing.target);
        await this.offerRetry();
      }
    }
  }

  /** Say that files could not be loaded; resolve when the participant wants to try again. */
  offerRetry() {
    const { say } = this.#strings;
    return this.#screens.next(say("loading"), [paragraph(say("load_failed"))], "try_again");
  }

  /** Wait for a promise; if that takes long enough to be noticed, say so. */
  async showWaiting(promise) {
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
