// The targets as elements: loaded before they are needed, kept in memory, ready to be painted when they are placed.

const ATTEMPTS = 3;
const RETRY_MS = 500;
const AT_ONCE = 6;
const PATIENCE_MS = 120_000;

export class Stimuli {
  #targets;
  #strings;
  #elements = new Map();
  #loaded = new Map();

  constructor(targets, strings) {
    this.#targets = targets;
    this.#strings = strings;
  }

  get hasFiles() {
    return this.#targets.some((target) => target.source);
  }

  /** Load the files of these targets, or of all; `progress(done, all)` is told. Resolves with the targets that failed. */
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
    const all = Promise.all(Array.from({ length: AT_ONCE }, worker));
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS);
    });
    await Promise.race([all, late]);
    clearTimeout(timer);
    return [...failed, ...queue.splice(0)];
  }

  /** Load what the next trials will probably show; what does not come is asked for again when it is shown. */
  anticipate(targets) {
    for (const index of targets) this.#load(index).catch(() => {});
  }

  /** Resolves when the three targets of a query can be painted at once; rejects with {target} when one cannot be had. */
  prepare(query) {
    return Promise.all([query.head, query.left, query.right].map((index) => this.#load(index)));
  }

  kind(index) {
    return this.#targets[index].kind;
  }

  /** The element of a prepared target, named for its place in the language of the page; never by its file. */
  element(index, place) {
    const element = this.#elements.get(index);
    const neutral = this.#strings.say(`${place}_name`);
    if (element instanceof HTMLImageElement) element.alt = this.#targets[index].alt || neutral;
    for (const image of element.querySelectorAll("img:not([alt]), img[alt='']")) image.alt = neutral;
    return element;
  }

  /** What a screen reader calls a target in its place. */
  name(index, place) {
    const target = this.#targets[index];
    const said = target.text ?? target.alt ?? this.#elements.get(index)?.textContent.trim() ?? "";
    const neutral = this.#strings.say(`${place}_name`);
    return said ? `${neutral}: ${said}` : neutral;
  }

  async #load(index) {
    const target = this.#targets[index];
    if (!this.#loaded.has(index)) {
      const loading = target.source ? this.#fetch(index) : Promise.resolve(this.#make(index));
      this.#loaded.set(index, loading);
      loading.catch(() => this.#loaded.delete(index)); // asked for again, it is tried again
    }
    return this.#loaded.get(index);
  }

  async #fetch(index) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#make(index, await source(this.#targets[index]));
      } catch {
        if (attempt === ATTEMPTS) throw new Missing(index);
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
    return decoded(element);
  }
}

class Missing extends Error {
  constructor(target) {
    super(`Target ${target} could not be loaded.`);
    this.target = target;
  }
}

/** Sounds and films are held in memory, so that playing them never waits; pictures are decoded by the browser itself. */
async function source(target) {
  if (target.kind === "image") return target.source;
  const response = await fetch(target.source);
  if (!response.ok) throw new Error(`Status ${response.status}`);
  return URL.createObjectURL(await response.blob());
}

/** The element, when it can be painted at once. Text is returned as it is: there is nothing to wait for. */
function decoded(element) {
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
