// Decides when a choice counts, without a document: after the onset and the lock-out, once, by a newly pressed key or button.

export class Choosing {
  #minRtMs;
  #keys;
  #held = new Set();
  #pressedAt = { left: null, right: null };
  #onset = null;

  /** `keys` are the keys for left and right, or none; times are milliseconds of the page's monotonic clock. */
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

  /** Accept choices: all three targets are visible since `onset`. */
  begin(onset) {
    this.#onset = onset;
    this.#pressedAt = { left: null, right: null };
  }

  end() {
    this.#onset = null;
  }

  /** Return the side that a key selects, or null. */
  sideOf(key) {
    return ["left", "right"][this.#keys.indexOf(key.toLowerCase())] ?? null;
  }

  /** Return the choice that pressing this key makes, or null. A key held since before the onset does not count. */
  keyDown(key, at, { repeat = false, modified = false } = {}) {
    const fresh = !repeat && !this.#held.has(key.toLowerCase());
    this.#held.add(key.toLowerCase());
    const side = this.sideOf(key);
    return side && fresh && !modified ? this.#choice(side, at, "key") : null;
  }

  keyUp(key) {
    this.#held.delete(key.toLowerCase());
  }

  /** Forget held keys: the window lost focus, so their release may go unnoticed. */
  forgetKeys() {
    this.#held.clear();
  }

  /** Note when a pointer went down on a foot: if it is released there too, that is the time of the choice. */
  pointerDown(side, at) {
    this.#pressedAt[side] = at;
  }

  /** Return the choice of a click on a foot, by pointer, keyboard or assistive technology, or null. */
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
