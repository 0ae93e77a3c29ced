// What this tab remembers over a reload: its session and the queries it was served. No cookie, so a frame can do it too.

export class Memory {
  #name;
  #storage;

  /** Where the browser gives no storage, the session is kept in the address, and queries are not kept. */
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
      // Full: a reload asks the server again.
    }
  }
}
