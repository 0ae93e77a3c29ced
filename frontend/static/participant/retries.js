// Tries requests and files again after a failure, and tells the participant why the page waits.

import { repeat } from "./api.js";
import { paragraph } from "./screens.js";

const NOTICE_MS = 300; // shorter waits are not announced
const MOST_PASSED_OVER = 10; // queries in a row; then the participant is asked again

export class Retries {
  #passedOver = 0;
  #screens;
  #strings;
  /** @type {Set<number>} */
  #without = new Set();

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

  /**
   * Load files and resolve to whether they are there. After a failure, try again whenever the participant asks for it; after a
   * second one, they may go on without that file, and are asked again only if nothing else can be shown either.
   */
  async loadFiles(load) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        await load();
        this.#passedOver = 0;
        return true;
      } catch (missing) {
        this.onMissingFile(missing.target);
        if (this.#without.has(missing.target) && this.#passedOver < MOST_PASSED_OVER) {
          this.#passedOver += 1;
          return false;
        }
        if (await this.offerRetry({ mayGoOn: attempt > 0 || this.#passedOver > 0 })) continue;
        this.goOnWithout([missing.target]);
        return false;
      }
    }
  }

  /** Say that files could not be loaded; resolves to whether to try again. */
  async offerRetry({ mayGoOn }) {
    const { say } = this.#strings;
    const names = mayGoOn ? ["try_again", "go_on_without"] : ["try_again"];
    const actions = Object.fromEntries(names.map((name) => [name, { label: say(name) }]));
    const parts = [paragraph(say("load_failed")), ...(mayGoOn ? [paragraph(say("way_out"))] : [])];
    return (await this.#screens.show({ actions, heading: say("loading"), parts })) === "try_again";
  }

  /** Ask no more about these targets: queries that show one of them are passed over. */
  goOnWithout(targets) {
    for (const target of targets) this.#without.add(target);
    this.#passedOver = 0;
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
