// A place on this device for answers that the server has not confirmed: IndexedDB, or memory where the browser gives none.

const PATIENCE_MS = 1000; // a database that hangs must not keep answers from being sent

export class Shelf {
  #database;
  #place;

  static async open(place) {
    return new Shelf(await patiently(openDatabase()).catch(() => null), place);
  }

  /** `place` tells the experiments of one server apart. */
  constructor(database, place) {
    this.#database = database;
    this.#place = place;
  }

  /** What is kept for this place, in the order in which it was put here. */
  async all() {
    const kept = (await this.#do("readonly", (store) => store.getAll())) ?? [];
    return kept
      .filter((entry) => entry.place === this.#place)
      .sort((one, other) => one.number - other.number)
      .map((entry) => entry.answer);
  }

  put(answer) {
    return this.#do("readwrite", (store) => store.put({ answer, number: performance.timeOrigin + performance.now(), place: this.#place, token: answer.token }));
  }

  async remove(tokens) {
    await Promise.all(tokens.map((token) => this.#do("readwrite", (store) => store.delete(token))));
  }

  async #do(mode, request) {
    if (!this.#database) return undefined;
    try {
      return await patiently(promised(request(this.#database.transaction("answers", mode).objectStore("answers"))));
    } catch {
      return undefined; // full, or taken away meanwhile: the answers are in memory too
    }
  }
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("salmon", 1); // throws, and so rejects, where storage is switched off
    request.onupgradeneeded = () => request.result.createObjectStore("answers", { keyPath: "token" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function patiently(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("The database does not answer.")), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
