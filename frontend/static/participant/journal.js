// Records events besides answers (focus, window size, skips, texts pasted, files that failed to load) and sends them every few seconds.

const SEND_EVERY_MS = 5000;
const MAX_ENTRIES = 200;
const FRAMES = 60;

export class Journal {
  #send;
  #entries = [];
  #timer = null;
  #detach = new AbortController();

  /** `send(list)` resolves when the server has the events; `trial()` returns the number of the current trial. */
  constructor({ send, trial }) {
    this.#send = send;
    this.trial = trial;
  }

  /**
   * @param {string} event
   * @param {string | number} detail
   */
  note(event, detail = "") {
    this.#entries.push({ client_ms: performance.now(), detail: String(detail).slice(0, 500), event, trial: this.trial() });
    this.#entries.splice(0, Math.max(0, this.#entries.length - MAX_ENTRIES)); // after a long time offline, keep the newest
    this.#timer ??= setTimeout(() => this.flush(), SEND_EVERY_MS);
  }

  /** Start to record focus, visibility and window size. */
  watch() {
    const { signal } = this.#detach;
    const size = () => `${innerWidth}x${innerHeight}`;
    addEventListener("blur", () => this.note("blur"), { signal });
    addEventListener("focus", () => this.note("focus"), { signal });
    addEventListener("resize", () => this.note("resize", size()), { signal });
    document.addEventListener("visibilitychange", () => this.note(document.visibilityState), { signal });
    document.addEventListener("fullscreenchange", () => this.note(document.fullscreenElement ? "fullscreenenter" : "fullscreenexit"), { signal });
    // Only that it happened, and only in questions that ask for a text.
    for (const kind of ["copy", "paste"]) {
      document.addEventListener(kind, ({ target }) => target instanceof Element && target.closest(".field")?.querySelector("textarea") && this.note(kind), { signal });
    }
    addEventListener("pagehide", () => this.flush(), { signal });
    this.note("opened", `${size()} ${devicePixelRatio}`);
    refreshIntervalMs().then((intervalMs) => this.note("refresh", intervalMs.toFixed(2)));
  }

  close() {
    this.#detach.abort();
    clearTimeout(this.#timer);
  }

  async flush() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const sent = this.#entries;
    this.#entries = [];
    if (sent.length === 0) return;
    try {
      await this.#send(sent);
    } catch (failure) {
      if (!failure.retryable) return;
      this.#entries = [...sent, ...this.#entries].slice(-MAX_ENTRIES);
      this.#timer ??= setTimeout(() => this.flush(), SEND_EVERY_MS);
    }
  }
}

/** Return the median time between two frames, which limits how precisely an onset is known. */
async function refreshIntervalMs() {
  const frame = () => new Promise(requestAnimationFrame);
  const between = [];
  let before = await frame();
  while (between.length < FRAMES) {
    const now = await frame();
    between.push(now - before);
    before = now;
  }
  return between.sort((one, other) => one - other)[FRAMES / 2];
}
