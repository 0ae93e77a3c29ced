// Notices that a participant has not answered: after one minute the page asks, after ten the study pauses.

const IDLE_MS = 60_000;
const PAUSE_MS = 600_000;

export class IdleTimer {
  #timers = [];

  /** `onIdle()` and `onPause()` are called once after every `start`, unless `stop` comes first. */
  constructor({ onIdle, onPause }) {
    this.onIdle = onIdle;
    this.onPause = onPause;
  }

  start() {
    this.stop();
    this.#timers = [setTimeout(this.onIdle, IDLE_MS), setTimeout(this.onPause, PAUSE_MS)];
  }

  stop() {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
  }
}
