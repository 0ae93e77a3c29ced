// Keeps the session and the served queries of this tab across reloads, without cookies, so that it works in frames.

export class TabStorage {
  #name;
  #storage;

  /** If the browser offers no storage, the session is kept in the address and queries are lost. */
  constructor(place) {
    this.#name = `salmon ${place}`;
    try {
      this.#storage = globalThis.sessionStorage;
      this.#storage.getItem(this.#name);
    } catch {
      this.#storage = null;
    }
  }

  get session() {
    return this.#read().session ?? new URLSearchParams(location.hash.slice(1)).get("session");
  }

  get participant() {
    return this.#read().participant ?? null;
  }

  get queries() {
    return this.#read().queries ?? [];
  }

  keepSession(session, participant) {
    if (this.#storage) this.#write({ ...this.#read(), participant, session });
    else history.replaceState(history.state, "", `#session=${encodeURIComponent(session)}`);
  }

  keepQueries(queries) {
    this.#write({ ...this.#read(), queries });
  }

  #read() {
    try {
      return JSON.parse(this.#storage?.getItem(this.#name) ?? "{}");
    } catch {
      return {};
    }
  }

  #write(content) {
    try {
      this.#storage?.setItem(this.#name, JSON.stringify(content));
    } catch {
      // Storage is full: after a reload the page asks the server again.
    }
  }
}
