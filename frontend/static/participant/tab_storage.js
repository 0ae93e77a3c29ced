// Keeps the session, the served queries and, if need be, the unsent answers of this tab across reloads, without cookies.

export class TabStorage {
  #name;
  #storage;

  constructor(place) {
    this.#name = `salmon ${place}`;
    try {
      this.#storage = globalThis.sessionStorage;
      this.#storage.getItem(this.#name);
    } catch {
      // A page in an origin of its own, or in a browser without storage: the name of a window lasts as long as the window.
      this.#storage = {
        getItem: (key) => (window.name.startsWith(`${key} {`) ? window.name.slice(key.length + 1) : null),
        setItem: (key, text) => (window.name = `${key} ${text}`),
      };
    }
  }

  get session() {
    return this.#read().session ?? null;
  }

  get participant() {
    return this.#read().participant ?? null;
  }

  get queries() {
    return this.#read().queries ?? [];
  }

  keepSession(session, participant) {
    this.#write({ participant, session });
  }

  keepQueries(queries) {
    this.#write({ queries });
  }

  /** Return the unsent answers, in the order in which they were given. */
  async all() {
    return this.#read().answers ?? [];
  }

  async put(answer) {
    this.#write({ answers: [...(await this.all()), answer] });
  }

  async remove(tokens) {
    this.#write({ answers: (await this.all()).filter((answer) => !tokens.includes(answer.token)) });
  }

  #read() {
    try {
      return JSON.parse(this.#storage.getItem(this.#name) ?? "{}");
    } catch {
      return {};
    }
  }

  #write(change) {
    try {
      this.#storage.setItem(this.#name, JSON.stringify({ ...this.#read(), ...change }));
    } catch {
      // Storage is full: after a reload the page asks the server again.
    }
  }
}

/** Return the secret by which the server knows this browser again, or "" in a page that can keep none. */
export function browserSecret() {
  try {
    localStorage["salmon browser"] ??= Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    return localStorage["salmon browser"];
  } catch {
    return "";
  }
}
