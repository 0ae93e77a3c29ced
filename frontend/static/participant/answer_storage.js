// Stores answers on this device until the server has confirmed them, in IndexedDB.

const TIMEOUT_MS = 1000; // a database that hangs must not delay sending

export class AnswerStorage {
  #database;
  #place;

  /** Return the storage of an experiment, or null in a browser or a page that has none. */
  static async open(place) {
    const database = await withTimeout(openDatabase()).catch(() => null);
    return database && new AnswerStorage(database, place);
  }

  /** `place` is the experiment's path; one server may have several experiments. */
  constructor(database, place) {
    this.#database = database;
    this.#place = place;
  }

  /** Return the stored answers of this experiment in the order in which they were given. */
  async all() {
    const kept = (await this.#run("readonly", (store) => store.getAll())) ?? [];
    return kept
      .filter((entry) => entry.place === this.#place)
      .sort((one, other) => one.number - other.number)
      .map((entry) => entry.answer);
  }

  put(answer) {
    return this.#run("readwrite", (store) => store.put({ answer, number: performance.timeOrigin + performance.now(), place: this.#place, token: answer.token }));
  }

  async remove(tokens) {
    await Promise.all(tokens.map((token) => this.#run("readwrite", (store) => store.delete(token))));
  }

  async #run(mode, request) {
    try {
      return await withTimeout(toPromise(request(this.#database.transaction("answers", mode).objectStore("answers"))));
    } catch {
      return undefined; // full or deleted: the answers are in memory too
    }
  }
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("salmon", 1); // throws, and so rejects, if storage is disabled
    request.onupgradeneeded = () => request.result.createObjectStore("answers", { keyPath: "token" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function toPromise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function withTimeout(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("The database does not answer.")), TIMEOUT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
