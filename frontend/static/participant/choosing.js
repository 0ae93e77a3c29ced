// When a choice counts, without a document: after the onset, after the lock-out, once, by a key or button freshly pressed.

export class Choosing {
  #minRtMs;
  #keys;
  #held = new Set();
  #pressedAt = { left: null, right: null };
  #onset = null;

  /** `keys` are the two keys for left and right, or none; all times are milliseconds of the page's monotonic clock. */
  constructor({ minRtMs, keys }) {
    this.#minRtMs = minRtMs;
    this.#keys = keys.map((key) => key.toLowerCase());
  }

  get open() {
    return this.#onset !== null;
  }

  get onset() {
    return this.#onset;
  }

  /** All three targets are on the screen since `onset`. */
  begin(onset) {
    this.#onset = onset;
    this.#pressedAt = { left: null, right: null };
  }

  end() {
    this.#onset = null;
  }

  /** The side that a key stands for, or null. */
  sideOf(key) {
    return ["left", "right"][this.#keys.indexOf(key.toLowerCase())] ?? null;
  }

  /** A key goes down: the choice it makes, or null. A key held since before the onset has to be released first. */
  keyDown(key, at, { repeat = false, modified = false } = {}) {
    const fresh = !repeat && !this.#held.has(key.toLowerCase());
    this.#held.add(key.toLowerCase());
    const side = this.sideOf(key);
    return side && fresh && !modified ? this.#choice(side, at, "key") : null;
  }

  keyUp(key) {
    this.#held.delete(key.toLowerCase());
  }

  /** The window lost the keyboard: nobody tells us of keys released elsewhere. */
  forgetKeys() {
    this.#held.clear();
  }

  /** A pointer goes down on a foot: this is when the choice was made, if it comes up there too. */
  pointerDown(side, at) {
    this.#pressedAt[side] = at;
  }

  /** A foot was activated: by the pointer that went down on it, or by keyboard or assistive technology. */
  click(side, at, input) {
    const pressed = this.#pressedAt[side];
    this.#pressedAt[side] = null;
    return this.#choice(side, pressed ?? at, pressed === null ? "key" : input);
  }

  #choice(side, at, input) {
    if (this.#onset === null || at - this.#onset < this.#minRtMs) return null;
    const choice = { input, onset_client_ms: this.#onset, rt_ms: at - this.#onset, side };
    this.end();
    return choice;
  }
}
