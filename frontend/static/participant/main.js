// The participant page: arrive, answer query after query, finish.

import { Api } from "./api.js";
import { Outbox } from "./outbox.js";
import { Run } from "./run.js";
import { View } from "./view.js";

const RETRY_MS = 2000;
const FINISH_ATTEMPTS = 30;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const storage = (() => {
  try {
    return globalThis.sessionStorage;
  } catch {
    return null; // switched off: the page works, but a reload begins anew
  }
})();

async function start() {
  const api = new Api(location.pathname);
  const name = `salmon ${location.pathname}`;
  const parameters = Object.fromEntries(new URLSearchParams(location.search));
  const arrival = await patiently(() => api.arrive(parameters, storage?.getItem(`${name} session`) ?? null));
  storage?.setItem(`${name} session`, arrival.session);
  const view = new View(arrival.page, arrival.targets);
  view.participant(arrival.participant);
  if (arrival.page.skip_button) view.allowSkip();
  const outbox = new Outbox({
    changed: (waiting, failure) => view.status(failure ? `${failure.message} ${failure.hint}` : ""),
    name: `${name} answers`,
    send: (list) => api.answers(list),
    storage,
  });
  addEventListener("pagehide", () => outbox.flush());
  addEventListener("online", () => outbox.flush());
  const kept = outbox.waiting;
  const run = new Run({
    fetchQuery: () => patiently(() => api.query(), view),
    given: arrival.answers + kept,
    limit: arrival.page.max_queries,
  });
  outbox.flush();
  await answerAll({ api, outbox, page: arrival.page, run, view });
  await finish({ api, outbox, run, view });
}

async function answerAll({ api, outbox, page, run, view }) {
  for (;;) {
    view.progress(run.given, page.max_queries);
    const asked = performance.now();
    const query = await run.next();
    if (!query) return;
    const waited = performance.now() - asked;
    const showing = view.show(query);
    run.prefetch();
    const choice = await showing;
    if (choice) {
      outbox.put(run.answer(choice.winner, { ...choice.timing, query_wait_ms: waited }));
    } else {
      run.skip();
      api.events([{ client_ms: performance.now(), event: "skip", trial: query.trial }]).catch(() => {});
    }
    await view.blank();
  }
}

async function finish({ api, outbox, run, view }) {
  view.progress(run.given, run.given);
  view.message(["Saving your answers…"]);
  for (let attempt = 0; attempt < FINISH_ATTEMPTS; attempt += 1) {
    await outbox.flush();
    const reply = await patiently(() => api.finish(run.given), view);
    if (reply.complete) {
      const code = reply.code ? [`Your completion code: ${reply.code}`] : [];
      view.message([`Participant ID: ${reply.participant}`, ...code], reply.debrief);
      if (reply.redirect) location.assign(reply.redirect);
      return;
    }
    await pause(RETRY_MS);
  }
  view.message(["Some answers could not be saved. Please keep this page open and tell the people who run this study."]);
}

/** Try until it works, as long as trying again can help. */
async function patiently(request, view = null) {
  for (;;) {
    try {
      const reply = await request();
      view?.status("");
      return reply;
    } catch (failure) {
      if (!failure.again) throw failure;
      view?.status(`${failure.message} ${failure.hint}`);
      await pause(RETRY_MS);
    }
  }
}

start().catch((failure) => {
  const section = document.getElementById("message");
  document.getElementById("trial").hidden = true;
  section.hidden = false;
  section.textContent = [failure.message, failure.hint].filter(Boolean).join(" ");
  section.focus();
});
