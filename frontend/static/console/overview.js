// The live overview: key figures, problems, figures and tables.

import { Failure, at, get, put } from "./api.js";
import { $, copy, count, data, h, milliseconds, number, percent, short, showCopies, time } from "./dom.js";
import { Figure } from "./figure.js";
import * as figures from "./figures.js";
import { Table } from "./table.js";

const HISTORY_PAUSE_MS = 3000;

showCopies();
/** @type {import("../types").OverviewData} */
const { slug, samplers, names, may_edit: mayEdit } = data();
const link = /** @type {HTMLElement | null} */ (document.querySelector("[data-copy]"))?.dataset.copy ?? "";
const base = /** @type {const} */ (`/api/experiments/${slug}`);

const drawn = Object.fromEntries(Object.entries(figures).map(([name, figure]) => [name, new Figure(figure)]));
const order = ["accuracy", "answersOverTime", "responseTimes", "timeBetweenTrials", "answersPerTarget", "learning"];
const embeds = samplers.length > 0;
const shown = order.filter((name) => embeds || (name !== "accuracy" && name !== "learning"));
$("#figures").append(...shown.map((name) => drawn[name].element));

/** @type {Table<import("../types").SamplerRow>} */
const table = new Table(
  [
    { name: "name", label: "Sampler", value: (row) => row.name },
    { name: "share", label: "Share", number: true, value: (row) => row.share, show: (row) => `${row.share} %` },
    { name: "answers", label: "Answers", number: true, value: (row) => row.answers, show: (row) => number(row.answers) },
    { name: "queue", label: "Queue", number: true, help: "Queries that are ready to be served", value: (row) => (row.active ? row.queue : null), show: (row) => (row.active ? number(row.queue) : "–") },
    { name: "pending", label: "Pending", number: true, help: "Queries served but not answered yet", value: (row) => (row.active ? row.pending : null), show: (row) => (row.active ? number(row.pending) : "–") },
    { name: "fallbacks", label: "Fallbacks", number: true, help: "Random queries served because the queue was empty", value: (row) => row.fallbacks, show: (row) => number(row.fallbacks) },
    { name: "generation", label: "Generation", number: true, help: "Number of refits", value: (row) => row.generation, show: (row) => number(row.generation) },
    { name: "loss", label: "Loss", number: true, value: (row) => row.loss, show: (row) => short(row.loss) },
    { name: "refit_ms", label: "Refit time", number: true, value: (row) => row.refit_ms, show: (row) => milliseconds(row.refit_ms) },
    { name: "search_ms", label: "Search time", number: true, value: (row) => row.search_ms, show: (row) => milliseconds(row.search_ms) },
  ],
  { name: `${slug}-samplers`, label: "Samplers", key: (row) => row.name, searchable: false },
);
$("#samplers").append(table.element);

/** @type {Table<import("../types").Latency>} */
const server = new Table(
  [
    { name: "route", label: "Request", value: (row) => row.route, show: (row) => (row.route.endsWith("query") ? "next query" : "record answers") },
    { name: "requests", label: "Count", number: true, value: (row) => row.requests, show: (row) => number(row.requests) },
    { name: "median_ms", label: "Median", number: true, value: (row) => row.median_ms, show: (row) => milliseconds(row.median_ms) },
    { name: "p99_ms", label: "99th percentile", number: true, value: (row) => row.p99_ms, show: (row) => milliseconds(row.p99_ms) },
  ],
  { name: `${slug}-server`, label: "Server", key: (row) => row.route, searchable: false },
);
$("#server").append(server.element);

const tile = (label, value, detail, { bar = null, warn = false, title = null } = {}) =>
  h(
    "div",
    { class: warn ? "tile warn" : "tile", title, "data-tile": label.toLowerCase() },
    h("p", { class: "label" }, label),
    h("p", { class: "value" }, value),
    bar === null ? null : h("progress", { max: 1, value: Math.min(1, bar), "aria-label": label }),
    h("p", { class: "quiet" }, detail),
  );

const HELD_OUT = "The share of answers to random queries that an embedding fitted without them predicts (ten-fold cross-validation). It is the same on the page Map, in Compare and in salmon fit.";

const ACTIONS = {
  invite: () => h("button", { type: "button", onclick: (event) => copy(event.target, link) }, "Copy link"),
  open: () => h("button", { type: "button", onclick: (event) => setState(event.target, "open") }, "Open the experiment"),
  close: () => h("button", { type: "button", onclick: (event) => setState(event.target, "closed") }, "Close the experiment"),
};

async function setState(button, state) {
  if (state === "closed" && !confirm("Close the experiment? Participants who have begun can no longer continue. You can open it again in Settings.")) return;
  button.disabled = true;
  try {
    await put(`${base}/state`, { state });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    $("#verdict-why").textContent = `${error.message} ${error.hint}`;
    button.disabled = false;
  }
}

let verdictShown = "";

/**
 * Show the verdict; the button is drawn anew only when the verdict changes, so that it can be pressed.
 * @param {import("../types").VerdictRow} verdict
 */
function showVerdict(verdict) {
  const now = JSON.stringify(verdict);
  if (now === verdictShown) return;
  verdictShown = now;
  $("#verdict").hidden = false;
  $("#verdict").dataset.level = verdict.level;
  if ($("#verdict-what").textContent !== verdict.what) $("#verdict-what").textContent = verdict.what;
  $("#verdict-why").textContent = verdict.why;
  $("#verdict-action").replaceChildren(...(verdict.action && (mayEdit || verdict.action === "invite") ? [ACTIONS[verdict.action]()] : []));
}

/** @param {import("../types").OverviewReply} overview */
function show(overview) {
  showVerdict(overview.verdict);
  const { answers, participants, backend, fallbacks, times } = overview;
  const best = overview.samplers.find(({ accuracy }) => accuracy !== null && accuracy !== undefined);
  const urgent = overview.sentences.filter(({ level }) => level === "error").length;
  $("#state").textContent = overview.state;
  $("#state").dataset.state = overview.state;
  $("#tiles").replaceChildren(
    tile("Answers", number(answers.total), `of ${number(answers.goal)} (${answers.goal_is})`, { bar: answers.total / answers.goal, title: answers.goal_from }),
    tile("Participants", number(participants.completed), `finished; ${number(participants.began)} began, ${number(participants.arrived)} opened the link${participants.wanted ? `; ${number(participants.held)} of ${number(participants.wanted)} places are taken` : ""}`),
    best
      ? tile("Held-out accuracy", percent(best.accuracy, 1), `95 % interval ${percent(best.accuracy_low, 1)} to ${percent(best.accuracy_high, 1)}, on ${number(best.judged)} random answers${describeCeiling(best)}`, { title: HELD_OUT })
      : tile("Held-out accuracy", "–", embeds ? "appears once random queries have been answered" : "no sampler fits an embedding while it runs; the page Map fits all answers", { title: HELD_OUT }),
    tile("Expected finish", answers.finish_ms ? time(answers.finish_ms) : answers.to_go === 0 ? "reached" : "–", answers.to_go === 0 ? "" : answers.a_minute > 0 ? `${short(answers.a_minute)} answers per minute, ${number(answers.to_go)} to go` : "no full minute of answers in the last half hour"),
    tile("Time between trials", milliseconds(times.wait.p95), `95th percentile, from an answer to the next query; ${percent(fallbacks.share, 1)} fallbacks`),
    tile(
      "Learning process",
      embeds ? (backend.alive ? "running" : "not running") : "not needed",
      backend.alive ? `${count(backend.workers, "worker")}${urgent ? `; ${count(urgent, "error")}` : ""}` : embeds ? "participants get random queries" : "no sampler fits an embedding",
      { warn: embeds && (!backend.alive || urgent > 0) },
    ),
  );
  $("#sentences").replaceChildren(
    ...(overview.sentences.length
      ? overview.sentences.map(({ level, what, hint, page, link: words }) => h("li", { class: level }, h("b", {}, what), ` ${hint}${page ? " " : ""}`, page ? h("a", { href: page }, words) : null))
      : [h("li", { class: "good" }, "No problems.")]),
  );
  for (const name of ["answersOverTime", "responseTimes", "timeBetweenTrials", "answersPerTarget"]) drawn[name].show({ ...overview, names });
  table.show(overview.samplers);
  server.show(overview.server);
}

/**
 * Say how far the accuracy is from the most that any embedding can predict. Both are estimates, so it may seem above.
 * @param {import("../types").SamplerRow} sampler
 */
function describeCeiling({ accuracy, ceiling }) {
  if (!ceiling) return "";
  return accuracy >= ceiling ? "; as much as people agree with one another" : `; about ${percent(ceiling)} is possible`;
}

/** @type {import("../types").SamplerRow | undefined} */
let judged;
let newest = -1;
let drawnGeneration = -1;
let readAt = -HISTORY_PAUSE_MS;
let timer = null;

/**
 * Read the history again after a new generation, but not more often than every few seconds.
 * @param {import("../types").OverviewReply} overview
 */
function readHistory(overview) {
  judged = overview.samplers.find(({ name }) => name === samplers[0]);
  newest = Math.max(-1, ...overview.samplers.map((sampler) => sampler.generation ?? -1));
  if (!embeds || newest === drawnGeneration || timer) return;
  timer = setTimeout(async () => {
    // A generation published from here on needs another read.
    timer = null;
    drawnGeneration = newest;
    readAt = performance.now();
    try {
      const history = await get(`${base}/history?sampler=${encodeURIComponent(samplers[0])}`);
      drawn.accuracy.show({ ...history, held: judged });
      drawn.learning.show(history);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      drawnGeneration = -1; // the next overview reads it again; #live says that the connection is lost
    }
  }, Math.max(0, readAt + HISTORY_PAUSE_MS - performance.now()));
}

const live = $("#live");
const source = new EventSource(at(`${base}/stream`));
source.addEventListener("overview", (event) => {
  /** @type {import("../types").OverviewReply} */
  const overview = JSON.parse(event.data);
  show(overview);
  readHistory(overview);
  live.textContent = "";
  live.append("Updated live. Last update: ", time(overview.now_ms), ".");
});
source.addEventListener("error", () => {
  live.textContent = "Connection lost. These are the last known numbers. Reconnecting…";
});
addEventListener("pagehide", () => source.close());
