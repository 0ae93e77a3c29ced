// Saves a draft while somebody types, tells who else has it open, and never overwrites what somebody else has saved.

import { Failure, at, get, post, put, remove, token } from "./api.js";

const PAUSE_MS = 800;
const AGAIN_MS = 5000;
const HEARTBEAT_MS = 8000;

export class DraftKeeper {
  version = 0;
  /** @type {`?slug=${string}` | ""} */
  #query;
  #window = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  #read;
  #report;
  #dirty = false;
  #saving = null;
  #timer = null;
  #beat = null;
  #stopped = false;
  #theirs = null;

  /** `read` returns the text; `report` is called with {status}, {others}, {newer} or {conflict}. */
  constructor({ slug, read, report }) {
    this.#query = slug ? `?slug=${encodeURIComponent(slug)}` : "";
    this.#read = read;
    this.#report = report;
    addEventListener("beforeunload", (event) => this.#dirty && event.preventDefault());
    addEventListener("pagehide", () => this.#close());
  }

  /** Return the draft as it was last saved, and begin to tell who else has it open. */
  async open() {
    const draft = await get(`/api/draft${this.#query}`);
    this.version = draft.version;
    this.#heartbeat();
    this.#beat = setInterval(() => this.#heartbeat(), HEARTBEAT_MS);
    return draft;
  }

  /** The text has changed: it is saved after a pause. */
  changed() {
    if (this.#stopped) return;
    this.#dirty = true;
    if (!this.#theirs) this.#report({ status: "Not saved yet" });
    this.#later(PAUSE_MS);
  }

  /** The text was replaced by one that is saved as this version. */
  adopt(version) {
    this.version = version;
    this.#dirty = false;
    this.#theirs = null;
    clearTimeout(this.#timer);
    this.#report({ status: "Saved", conflict: null, newer: null });
  }

  /** Save the text over what somebody else has saved, which stays in the history. */
  async keepMine() {
    this.version = this.#theirs?.version ?? this.version;
    this.#theirs = null;
    this.#report({ conflict: null, newer: null });
    this.#dirty = true;
    await this.save();
  }

  async save() {
    clearTimeout(this.#timer);
    if (this.#saving) await this.#saving;
    if (!this.#dirty || this.#theirs || this.#stopped) return;
    this.#saving = this.#saveOnce();
    await this.#saving;
    this.#saving = null;
  }

  /** Return the versions that are kept, the newest first. */
  async versions() {
    return (await get(`/api/draft${this.#query}`)).versions;
  }

  async textOf(number) {
    return (await get(`/api/draft/versions/${number}${this.#query}`)).spec;
  }

  /** Remove the draft: the text is what was saved as an experiment. */
  async discard() {
    clearTimeout(this.#timer);
    if (this.#saving) await this.#saving;
    await remove(`/api/draft${this.#query}`);
    this.adopt(0);
  }

  /** The draft has become an experiment or a revision: nothing of it is saved or asked any more. */
  stop() {
    this.#stopped = true;
    this.#dirty = false;
    clearTimeout(this.#timer);
    clearInterval(this.#beat);
  }

  /** Go on after `stop`, with the draft that begins now. */
  restart() {
    this.#stopped = false;
    this.adopt(0);
    this.#beat = setInterval(() => this.#heartbeat(), HEARTBEAT_MS);
  }

  upload(form) {
    return post(`/api/draft/targets${this.#query}`, form);
  }

  removeTargets(name = "") {
    /** @type {`?${string}` | `&${string}` | ""} */
    const named = name ? `${this.#query ? "&" : "?"}name=${encodeURIComponent(name)}` : "";
    return remove(`/api/draft/targets${this.#query}${named}`);
  }

  #later(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.save(), delay);
  }

  async #saveOnce() {
    const spec = this.#read();
    this.#report({ status: "Saving …" });
    try {
      const { version } = await put(`/api/draft${this.#query}`, { spec, known: this.version, window: this.#window });
      this.version = version;
      if (this.#read() === spec) this.#dirty = false;
      else this.#later(PAUSE_MS);
      this.#report({ status: this.#dirty ? "Not saved yet" : "Saved" });
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.status === 409) {
        await this.#meet();
      } else {
        this.#report({ status: `Not saved: ${error.message}` });
        this.#later(AGAIN_MS);
      }
    }
  }

  /** Somebody else has saved a version: show both, and save nothing until one is chosen. */
  async #meet() {
    const draft = await get(`/api/draft${this.#query}`);
    const newest = draft.versions[0] ?? null;
    if (draft.spec === this.#read()) {
      this.adopt(draft.version);
      return;
    }
    this.#theirs = { version: draft.version, spec: draft.spec, by: newest?.by ?? "", at_ms: newest?.at_ms ?? null };
    this.#report({ status: "Not saved: there are two versions", conflict: this.#theirs });
  }

  async #heartbeat() {
    try {
      const { others, version } = await post(`/api/draft/windows${this.#query}`, { window: this.#window });
      this.#report({ others });
      if (!this.#stopped && !this.#dirty && !this.#saving && version !== this.version) {
        if (version > 0) this.#report({ newer: version });
        else this.#report({ gone: true });
      }
    } catch (error) {
      if (!(error instanceof Failure)) throw error; // the server is away: saving says so
    }
  }

  #close() {
    clearInterval(this.#beat);
    fetch(at(`/api/draft/windows${this.#query}`), {
      method: "POST",
      keepalive: true,
      headers: { "Content-Type": "application/json", "X-CSRF-Token": token() },
      body: JSON.stringify({ window: this.#window, closed: true }),
    }).catch(() => {}); // whoever is not heard of has closed the page
  }
}
