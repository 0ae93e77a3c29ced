// What happens on the page beside the answers: focus, sizes, skips, files that did not load. Sent now and then.

const EVERY_MS = 5000;
const MOST = 200;
const FRAMES = 60;

export class Journal {
  #send;
  #entries = [];
  #timer = null;
  #detach = new AbortController();

  /** `send(list)` resolves when the server has them; `trial` says which trial is on the screen. */
  constructor({ send, trial }) {
    this.#send = send;
    this.trial = trial;
  }

  note(event, detail = "") {
    this.#entries.push({ client_ms: performance.now(), detail: String(detail).slice(0, 500), event, trial: this.trial() });
    this.#entries.splice(0, Math.max(0, this.#entries.length - MOST)); // offline for long: the newest tell most
    this.#timer ??= setTimeout(() => this.flush(), EVERY_MS);
  }

  /** Note from now on when people look away, come back, or change the size of the window. */
  watch() {
    const { signal } = this.#detach;
    const size = () => `${innerWidth}x${innerHeight}`;
    addEventListener("blur", () => this.note("blur"), { signal });
    addEventListener("focus", () => this.note("focus"), { signal });
    addEventListener("resize", () => this.note("resize", size()), { signal });
    document.addEventListener("visibilitychange", () => this.note(document.visibilityState), { signal });
    document.addEventListener("fullscreenchange", () => this.note(document.fullscreenElement ? "fullscreenenter" : "fullscreenexit"), { signal });
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
      if (!failure.again) return;
      this.#entries = [...sent, ...this.#entries].slice(-MOST);
      this.#timer ??= setTimeout(() => this.flush(), EVERY_MS);
    }
  }
}

/** The usual time between two frames of this display: how precisely an onset can be known. */
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
