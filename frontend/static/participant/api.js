// Requests of the page. Every request ends in a value or in a Failure that says whether trying again can help.

const TIMEOUT_MS = 10_000;

export class Failure extends Error {
  constructor(message, hint, { again }) {
    super(message);
    this.hint = hint;
    this.again = again;
  }
}

export class Api {
  #base;
  #session = null;

  constructor(base) {
    this.#base = base;
  }

  async arrive(parameters, session) {
    const reply = await this.#post("arrive", { parameters, session });
    this.#session = reply.session;
    return reply;
  }

  query() {
    return this.#send("query", { method: "GET" });
  }

  async answers(list) {
    return (await this.#post("answers", list)).results;
  }

  events(list) {
    return this.#post("events", list);
  }

  finish(given) {
    return this.#post("finish", { given });
  }

  #post(path, body) {
    return this.#send(path, {
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
      keepalive: true,
      method: "POST",
    });
  }

  async #send(path, options) {
    const headers = { ...options.headers };
    if (this.#session) headers["X-Salmon-Session"] = this.#session;
    let response;
    try {
      response = await fetch(this.#base + path, { ...options, headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
    } catch {
      throw new Failure("There is no connection at the moment.", "Your answers are kept and sent later.", { again: true });
    }
    const reply = await response.json().catch(() => null);
    if (response.ok && reply) return reply;
    if (Array.isArray(reply?.results)) return reply;
    const error = reply?.error ?? { hint: "", message: `The server answered with status ${response.status}.` };
    throw new Failure(error.message, error.hint, { again: response.status >= 500 || response.status === 429 });
  }
}
