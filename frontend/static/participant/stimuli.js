// Loads the targets before they are needed and keeps their elements in memory, ready to be painted.

const ATTEMPTS = 3;
const RETRY_MS = 500;
const PARALLEL = 6;
const TIMEOUT_MS = 120_000;

export class Stimuli {
  /** @type {import("../types").ShownTarget[]} */
  #targets;
  #strings;
  #elements = new Map();
  #copies = new Map();
  #loaded = new Map();

  constructor(targets, strings) {
    this.#targets = targets;
    this.#strings = strings;
  }

  get hasFiles() {
    return this.#targets.some((target) => target.source);
  }

  /**
   * Load the files of these targets, or of all, and call `progress(done, all)`; resolves with the targets that failed.
   * @param {(done: number, all: number) => void} progress
   * @param {Iterable<number>} targets
   * @returns {Promise<number[]>}
   */
  async preload(progress, targets = this.#targets.keys()) {
    const wanted = [...targets].filter((index) => this.#targets[index].source);
    const queue = [...wanted];
    const failed = [];
    let done = 0;
    const worker = async () => {
      while (queue.length > 0) {
        const index = queue.shift();
        await this.#load(index).catch(() => failed.push(index));
        done += 1;
        progress(done, wanted.length);
      }
    };
    const all = Promise.all(Array.from({ length: PARALLEL }, worker));
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, TIMEOUT_MS);
    });
    await Promise.race([all, late]);
    clearTimeout(timer);
    return [...failed, ...queue.splice(0)];
  }

  /** Start to load targets that the next trials will probably show; failures are retried when they are shown. */
  prefetch(targets) {
    for (const index of targets) this.#load(index).catch(() => {});
  }

  /** Resolve when the three targets of a query can be painted at once; reject with {target} if one cannot be loaded. */
  prepare(query) {
    const loading = Promise.all([query.head, query.left, query.right].map((index) => this.#load(index)));
    return [query.left, query.right].includes(query.head) ? loading.then(() => this.#copy(query.head)) : loading;
  }

  kind(index) {
    return this.#targets[index].kind;
  }

  /** Return the element of a prepared target, or its `copy`. Its name is its place ("Left"), never its file. */
  element(index, place, { copy = false } = {}) {
    const element = (copy ? this.#copies : this.#elements).get(index);
    const neutral = this.#strings.say(`${place}_name`);
    if (element instanceof HTMLImageElement) element.alt = this.#targets[index].alt || neutral;
    for (const image of element.querySelectorAll("img:not([alt]), img[alt='']")) image.alt = neutral;
    return element;
  }

  /** Return what a screen reader calls a target at a place. */
  name(index, place) {
    const target = this.#targets[index];
    const said = target.text ?? target.alt ?? this.#elements.get(index)?.textContent.trim() ?? "";
    const neutral = this.#strings.say(`${place}_name`);
    return said ? `${neutral}: ${said}` : neutral;
  }

  /** Make a second element of a target, which a catch trial shows as head and as foot. */
  #copy(index) {
    const copy = this.#elements.get(index).cloneNode(true);
    this.#copies.set(index, copy);
    return decode(copy);
  }

  async #load(index) {
    const target = this.#targets[index];
    if (!this.#loaded.has(index)) {
      const loading = target.source ? this.#fetch(index) : Promise.resolve(this.#make(index));
      this.#loaded.set(index, loading);
      loading.catch(() => this.#loaded.delete(index)); // the next request tries again
    }
    return this.#loaded.get(index);
  }

  async #fetch(index) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#make(index, await loadSource(this.#targets[index]));
      } catch {
        if (attempt === ATTEMPTS) throw new LoadError(index);
        await new Promise((resolve) => setTimeout(resolve, attempt * RETRY_MS));
      }
    }
  }

  #make(index, address) {
    const target = this.#targets[index];
    const element = document.createElement({ audio: "audio", image: "img", video: "video" }[target.kind] ?? "span");
    element.className = `stimulus ${target.kind}`;
    if (target.kind === "text") element.textContent = target.text;
    else if (target.kind === "html") element.innerHTML = target.html; // cleaned by the server
    else element.src = address;
    if (target.width > 0) Object.assign(element, { height: target.height, width: target.width });
    if (target.kind === "video") Object.assign(element, { loop: true, muted: true, playsInline: true, preload: "auto" });
    this.#elements.set(index, element);
    return decode(element);
  }
}

class LoadError extends Error {
  constructor(target) {
    super(`Target ${target} could not be loaded.`);
    this.target = target;
  }
}

/** Load sounds and videos into memory, so that they play without delay; the browser loads pictures itself. */
async function loadSource(target) {
  if (target.kind === "image") return target.source;
  const response = await fetch(target.source);
  if (!response.ok) throw new Error(`Status ${response.status}`);
  return URL.createObjectURL(await response.blob());
}

/** Return the element, or a promise of it, once it can be painted at once. */
function decode(element) {
  if (element instanceof HTMLImageElement) {
    return element.decode().then(() => element);
  }
  if (element instanceof HTMLVideoElement) {
    return new Promise((resolve, reject) => {
      element.addEventListener("loadeddata", () => resolve(element), { once: true });
      element.addEventListener("error", () => reject(element.error), { once: true });
      element.load();
    });
  }
  return element;
}
