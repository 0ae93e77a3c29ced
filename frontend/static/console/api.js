// Requests of the console. Each returns a value or throws a Failure whose message is shown to the experimenter.
//
// The types of replies and bodies follow from the address, by ../types.d.ts, which is made from the server's routes.

/** @import { Body, Reply } from "../types" */

export class Failure extends Error {
  constructor(error, status) {
    super(error.message);
    this.hint = error.hint ?? "";
    this.code = error.code ?? "";
    this.where = error.where ?? "";
    this.problems = error.problems ?? [];
    this.status = status;
  }
}

/** The path under which a proxy shows this server, known from where this module comes from; "" at the top of its host. */
const MOUNT = new URL("../..", import.meta.url).pathname.slice(0, -1);

/** Return the address of a path of this server: every link, redirect and request of the console is made with it. */
export const at = (path) => MOUNT + path;

/** @type {() => string} */
export const token = () => /** @type {HTMLMetaElement} */ (document.querySelector('meta[name="csrf"]')).content;

export async function request(method, path, body = undefined) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF-Token"] = token();
  if (body !== undefined && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(at(path), { method, headers, body });
  } catch {
    throw new Failure({ message: "The server does not respond.", hint: "Nothing was changed. Try again in a moment." }, 0);
  }
  const content = await reply.json().catch(() => null);
  if (reply.status === 401) {
    location.assign(at("/console/login"));
    throw new Failure({ message: "Your session has ended.", hint: "Log in again." }, 401);
  }
  if (!reply.ok) {
    const error = content?.error ?? { message: `The server responded with status ${reply.status}.`, hint: "Try again." };
    throw new Failure(error, reply.status);
  }
  return content;
}

/** Post a body and return the file that is the reply. */
export async function download(path, body) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": token() };
  const reply = await fetch(at(path), { method: "POST", headers, body: JSON.stringify(body) }).catch(() => null);
  if (reply === null) throw new Failure({ message: "The server does not respond.", hint: "Try again in a moment." }, 0);
  if (reply.ok) return reply.blob();
  const content = await reply.json().catch(() => null);
  throw new Failure(content?.error ?? { message: `The server responded with status ${reply.status}.`, hint: "Try again." }, reply.status);
}

/** @type {<const P extends string>(path: P) => Promise<Reply<"GET", P>>} */
export const get = (path) => request("GET", path);
/** @type {<const P extends string>(path: P, body?: Body<"POST", P>) => Promise<Reply<"POST", P>>} */
export const post = (path, body) => request("POST", path, body);
/** @type {<const P extends string>(path: P, body: Body<"PUT", P> | FormData) => Promise<Reply<"PUT", P>>} */
export const put = (path, body) => request("PUT", path, body);
/** @type {<const P extends string>(path: P, body?: Partial<Body<"DELETE", P>>) => Promise<Reply<"DELETE", P>>} */
export const remove = (path, body) => request("DELETE", path, body);

/** Call `work` when a form is submitted, with its buttons disabled meanwhile, and show the outcome below it. */
export function handleSubmit(form, work) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const outcome = form.querySelector(".outcome");
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => (button.disabled = true));
    outcome?.classList.remove("failed");
    try {
      const outcomeText = await work(new FormData(form), event.submitter);
      if (outcome) outcome.replaceChildren(outcomeText ?? "");
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      outcome?.classList.add("failed");
      outcome?.replaceChildren(...errorParagraphs(error));
    } finally {
      buttons.forEach((button) => (button.disabled = false));
    }
  });
}

/** Return an error as paragraphs: all problems of a file, or one sentence. */
export function errorParagraphs(error) {
  const problems = error.problems.map((problem) => problem.sentence ?? `${problem.where}: ${problem.message}`);
  const lines = problems.length ? problems : [`${error.message} ${error.hint}`.trim()];
  return lines.map((line) => {
    const paragraph = document.createElement("p");
    paragraph.textContent = line;
    return paragraph;
  });
}
