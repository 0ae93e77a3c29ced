// The participants page: quality figures, flags and exclusions.

import { Failure, at, get, post, put, remove } from "./api.js";
import { $, count, data, duration, h, milliseconds, number, percent, short, showCopies, svg, time } from "./dom.js";
import { Table } from "./table.js";
import { Thresholds } from "./thresholds.js";

const AGAIN_MS = 1500;
const PAGE = 5000;
const MOST_DECISIONS = 1000;
// Flags that say nothing about how somebody answered.
const INFORMS = new Set(["incomplete", "pasted", "same_browser", "same_network"]);

showCopies();
/** @type {import("../types").ParticipantsData} */
const { slug, samplers, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);
/** @typedef {import("../types").ParticipantRow} Row */
/** @type {Row[]} */
let people = [];

/** @type {(name: keyof import("../types").Figures) => (row: Row) => any} */
const figure = (name) => (row) => row.figures?.[name] ?? null;
const share = (name, label, help) => ({
  name,
  label,
  help,
  number: true,
  value: figure(name),
  show: (row) => percent(figure(name)(row)),
});

/** @type {(row: Row) => string} */
const name = (row) => row.puid || row.participant;

/** @type {(row: Row) => "kept" | "excluded" | "proposed for exclusion"} */
const standing = (row) => (row.keep ? "kept" : row.keep_manual ? "excluded" : "proposed for exclusion");
const STANDING_CLASS = { kept: "kept", excluded: "excluded", "proposed for exclusion": "proposed" };
const STANDING_SIGN = { kept: "✓", excluded: "✕", "proposed for exclusion": "?" };

/** Write an id so that it stays on one line: platforms' ids have 24 characters, of which the ends differ. */
const shortened = (id) => (id.length > 18 ? `${id.slice(0, 9)}…${id.slice(-6)}` : id);

/** @type {Table<import("../types").ParticipantRow>} */
const table = new Table(
  [
    {
      name: "puid",
      label: "Participant",
      value: name,
      show: (row) =>
        h(
          "span",
          { class: "person" },
          h("button", { type: "button", class: "plain", "aria-label": `Answers of ${name(row)}`, title: name(row), onclick: () => showAnswers(row) }, shortened(name(row))),
          h("span", { class: "quiet block" }, row.source, row.puid ? ` · ${row.participant}` : ""),
        ),
    },
    {
      name: "fit_accuracy",
      label: "Fit",
      help: "Share of answers that the map predicts; in brackets, what it predicts of careful people with such queries",
      number: true,
      value: figure("fit_accuracy"),
      show: (row) => h("span", {}, percent(figure("fit_accuracy")(row)), figure("fit_expected")(row) === null ? "" : h("span", { class: "quiet" }, ` (${percent(figure("fit_expected")(row))})`)),
    },
    {
      name: "careless_p",
      label: "Evidence",
      help: "How rare such answers are among careful people: fit, agreement, catch trials, repeats, sides, runs and times together",
      value: figure("careless_p"),
      show: (row) => describeEvidence(figure("careless_p")(row)),
    },
    { name: "keep", label: "Decision", value: standing, show: (row) => decisionCell(row) },
    {
      name: "reasons",
      label: "Reasons",
      value: (row) => row.flags.map(({ reason }) => reason).join(" "),
      show: (row) => (row.flags.length ? h("ul", { class: "reasons" }, ...row.flags.map((flag) => h("li", { class: flag.excludes ? "excludes" : null }, flag.reason))) : ""),
    },
    { name: "answers", label: "Answers", number: true, value: (row) => row.answers, show: (row) => number(row.answers) },
    { name: "status", label: "Status", value: (row) => row.status, show: (row) => (row.status === "withdrawn" && mayEdit ? h("span", {}, "withdrawn ", h("a", { href: at(`/console/privacy?id=${encodeURIComponent(row.participant)}`), "aria-label": `Erase ${name(row)}` }, "Erase…")) : row.status) },
    { name: "geometric_mean_rt_ms", label: "Response time", help: "Geometric mean of the response times", number: true, value: figure("geometric_mean_rt_ms"), show: (row) => milliseconds(figure("geometric_mean_rt_ms")(row)) },
    share("fast_share", "Under 300 ms", "Share of answers given in less than 300 ms"),
    share("left_share", "Left", "Share of answers on the left side"),
    { name: "longest_run", label: "Longest run", help: "Longest sequence of answers on the same side", number: true, value: figure("longest_run") },
    share("catch_accuracy", "Catch trials", "Share of catch trials answered correctly"),
    share("agreement", "Agreement", "Share of shared queries answered like the majority"),
    share("repeat_consistency", "Consistency", "Share of repeated queries answered the same way"),
    {
      name: "hesitation",
      label: "Hesitation",
      help: "Rank correlation of response times with how surely the map tells the feet apart, and its 95 % interval. People answer easy queries faster: about −0.4. A program's times know nothing of the map: 0. Evidence, not a verdict",
      number: true,
      value: figure("hesitation"),
      show: (row) => (figure("hesitation")(row) === null ? "–" : h("span", {}, signed(figure("hesitation")(row)), h("span", { class: "quiet" }, ` (${signed(figure("hesitation_low")(row))} to ${signed(figure("hesitation_high")(row))})`))),
    },
    {
      name: "took_ms",
      label: "Duration",
      number: true,
      help: "From opening the link to finishing",
      value: (row) => (row.completed_ms ? row.completed_ms - row.first_ms : null),
      show: (row) => (row.completed_ms ? duration(row.completed_ms - row.first_ms) : "–"),
    },
    { name: "first_ms", label: "Arrived", value: (row) => row.first_ms, show: (row) => time(row.first_ms) },
    { name: "note", label: "Note", value: (row) => row.note },
  ],
  {
    name: `${slug}-participants`,
    label: "Participants",
    key: (row) => row.participant,
    sorted: "careless_p",
    select: mayEdit ? (keys) => showSelection(keys) : null,
  },
);
$("#table").append(table.element);

/** Write a correlation with two digits. */
function signed(value) {
  return (Math.round(100 * value) / 100 + 0).toFixed(2).replace("-", "−");
}

/** Say how rare such answers are among careful people, in words that need no statistics. */
function describeEvidence(p) {
  if (p === null) return "–";
  if (p >= 0.04) return "usual";
  return p < 1e-6 ? "under 1 in a million" : `1 in ${short(Math.round(1 / p))}`;
}

const selection = $("#selection");
let selected = [];
let undone = null;

/** Show what can be done with the rows that are ticked. */
function showSelection(keys) {
  selected = keys;
  $("#selected").textContent = keys.length ? `${count(keys.length, "participant")} selected` : "Nobody selected";
  for (const button of selection.querySelectorAll("[data-keep]")) button.disabled = keys.length === 0;
}

/** @type {string[]} */
let beyond = [];
const thresholds = new Thresholds((found) => {
  beyond = found;
  $("#select-beyond").disabled = beyond.length === 0;
  $("#compare-beyond").disabled = beyond.length === 0 || samplers.length === 0;
});
$("#sliders").append(thresholds.element);
$("#thresholds").hidden = !mayEdit;
$("#select-beyond").addEventListener("click", () => table.choose(beyond));

$("#propose").addEventListener("click", () => table.choose(people.filter(({ keep_auto: proposed }) => !proposed).map(({ participant }) => participant)));
selection.addEventListener("submit", async (event) => {
  event.preventDefault();
  const keep = event.submitter.dataset.keep;
  const note = keep === "auto" ? "" : $("#note").value;
  const decisions = selected.map((participant) => ({ participant, keep, note }));
  if (await decideAll(decisions, keep === "auto" ? "left to the proposal" : keep === "keep" ? "kept" : "excluded")) {
    $("#note").value = "";
    table.choose([]);
  }
});
$("#undo").addEventListener("click", async () => {
  const decisions = undone;
  if (await decideAll(decisions, "as before")) $("#undo").hidden = true;
});

/**
 * Store decisions, say so, and remember those before them for Undo.
 * @param {import("../types").NamedDecision[]} decisions
 * @param {string} done
 */
async function decideAll(decisions, done) {
  const before = decisions.map(({ participant }) => people.find((row) => row.participant === participant)).map((row) => ({ participant: row.participant, keep: row.keep_manual || "auto", note: row.note }));
  try {
    for (let from = 0; from < decisions.length; from += MOST_DECISIONS) {
      await put(`${base}/participants`, { decisions: decisions.slice(from, from + MOST_DECISIONS) });
    }
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    $("#decided").textContent = `${error.message} ${error.hint}`;
    return false;
  }
  undone = before;
  $("#undo").hidden = false;
  $("#decided").textContent = `${count(decisions.length, "participant")} ${done}.`;
  await read();
  return true;
}

/** @param {Row} row */
function decisionCell(row) {
  const now = standing(row);
  const words = `${STANDING_SIGN[now]} ${now}`;
  if (!mayEdit) return h("span", { class: STANDING_CLASS[now] }, words);
  const proposal = row.keep_auto ? "keep" : "exclude";
  const choice = h(
    "select",
    { "aria-label": `Decision for ${name(row)}`, onchange: (event) => decideAll([{ participant: row.participant, keep: event.target.value, note: event.target.value === "auto" ? "" : row.note }], "changed") },
    h("option", { value: "auto" }, `proposal: ${proposal}`),
    h("option", { value: "keep" }, "keep (manual)"),
    h("option", { value: "exclude" }, "exclude (manual)"),
  );
  choice.value = row.keep_manual || "auto";
  return h("span", { class: STANDING_CLASS[now] }, h("b", { class: "block" }, words), choice);
}

/**
 * Show the answers of one participant in order: times from below upwards, sides by direction, and what the map predicts.
 * @param {Row} row
 */
async function showAnswers(row) {
  const panel = $("#answers");
  panel.hidden = false;
  $("#answers-title").textContent = `Answers of ${name(row)}`;
  const { answers } = await get(`${base}/participants/${row.participant}/answers`);
  $("#answers-figure").replaceChildren(answers.length ? timeline(answers) : h("p", {}, "No answers yet."));
  const known = answers.filter(([, , , , fits]) => fits !== null);
  const left = answers.filter(([, , side]) => side === "left").length;
  $("#answers-words").textContent = `${count(answers.length, "answer")}, ${number(left)} on the left. ${known.length ? `The map predicts ${number(known.filter(([, , , , fits]) => fits).length)} of ${number(known.length)}.` : "There is no map to compare them with."}`;
  panel.scrollIntoView({ block: "nearest" });
  $("#answers-title").focus();
}

const TIMELINE = { height: 170, left: 56, top: 10, bottom: 30 };

/** @param {import("../types").AnswersOfParticipantReply["answers"]} answers */
function timeline(answers) {
  const { height, left, top, bottom } = TIMELINE;
  const step = Math.max(6, Math.min(18, 1100 / answers.length));
  const width = left + step * answers.length + 12;
  const [least, most] = [100, 30_000];
  const y = (ms) => top + (height - top - bottom) * (1 - Math.log(Math.min(most, Math.max(least, ms)) / least) / Math.log(most / least));
  const x = (place) => left + step * (place + 0.5);
  const scale = [100, 300, 1000, 3000, 10_000].map((ms) =>
    svg("g", { class: "scale" }, svg("line", { x1: left, x2: width, y1: y(ms), y2: y(ms) }), svg("text", { x: left - 6, y: y(ms) + 4, "text-anchor": "end" }, milliseconds(ms))),
  );
  const marks = answers.map(([, rt, side, , fits], place) => {
    const [cx, cy] = [x(place), y(rt ?? least)];
    const point = side === "left" ? -4 : 4;
    return svg(
      "path",
      { class: fits === null ? "unknown" : fits ? "predicted" : "surprising", d: `M${cx + point} ${cy} L${cx - point} ${cy - 4} L${cx - point} ${cy + 4} Z` },
      svg("title", {}, `${place + 1}: ${side}, ${rt === null ? "time unknown" : milliseconds(rt)}${fits === null ? "" : fits ? ", as the map predicts" : ", against the map"}`),
    );
  });
  const every = answers.length > 200 ? 50 : answers.length > 40 ? 20 : 5;
  const numbers = answers.map((_, place) => place + 1).filter((place) => place === 1 || place % every === 0);
  const axis = numbers.map((place) => svg("text", { x: x(place - 1), y: height - 8, "text-anchor": "middle" }, String(place)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers in order" }, svg("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Response time, side and prediction of each answer" }, ...scale, ...marks, ...axis));
}

/** Read and show all participants; while figures are being computed, show the previous ones and read again. */
async function read() {
  /** @type {import("../types").ParticipantsReply} */
  let reply;
  /** @type {Row[]} */
  const rows = [];
  do {
    reply = await get(`${base}/participants?offset=${rows.length}&limit=${PAGE}`);
    rows.push(...reply.participants);
  } while (rows.length < reply.total && reply.participants.length > 0);
  people = rows;
  table.show(people);
  thresholds.show(people);
  const leftOut = people.filter(({ keep }) => !keep);
  const excluded = leftOut.filter(({ keep_manual: manual }) => manual).length;
  const withdrawn = people.filter(({ status }) => status === "withdrawn").length;
  const undecided = leftOut.length - excluded;
  const flagged = people.filter(({ flags }) => flags.some((flag) => !INFORMS.has(flag.name))).length;
  const proposed = people.filter(({ keep_auto: kept }) => !kept).length;
  $("#propose").textContent = `Select the ${number(proposed)} proposed`;
  $("#propose").disabled = proposed === 0;
  $("#as-of").textContent = `${count(people.length, "participant")}: ${number(flagged)} flagged, ${number(undecided)} proposed for exclusion, ${number(excluded)} excluded. ${withdrawn ? `${count(withdrawn, "participant")} withdrew: what they gave is kept until you erase it. ` : ""}${reply.fresh ? "" : "Updating the figures for new answers…"}`;
  whom = [excluded ? `${number(excluded)} excluded` : "", undecided ? `${number(undecided)} proposed for exclusion` : ""].filter(Boolean).join(" and ");
  $("#compare").disabled = leftOut.length === 0 || samplers.length === 0;
  if (!reply.fresh) setTimeout(read, AGAIN_MS);
}

const outcome = $("#comparison");
$("#compare").closest("section").hidden = !mayEdit;
let running = null;
let whom = "";

$("#compare").addEventListener("click", () => compare($("#compare"), people.filter(({ keep }) => !keep).map(({ participant }) => participant), whom));
$("#compare-beyond").addEventListener("click", () => compare($("#compare-beyond"), beyond, `${number(beyond.length)} beyond the thresholds`));

/**
 * Compare the accuracy with and without some participants; the same button cancels it.
 * @param {HTMLButtonElement} button
 * @param {string[]} exclude
 * @param {string} words who they are, after "without the"
 */
async function compare(button, exclude, words) {
  if (running) {
    await remove(`${base}/requests/${running}`);
    return;
  }
  const label = button.textContent;
  try {
    const { request } = await post(`${base}/requests`, { kind: "fit", arguments: { exclude, sampler: samplers[0] } });
    running = request;
    button.textContent = "Cancel";
    outcome.scrollIntoView({ block: "nearest" });
    await follow(request, words);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    outcome.replaceChildren(h("p", { class: "failed" }, `${error.message} ${error.hint}`));
  } finally {
    running = null;
    button.textContent = label;
  }
}

async function follow(request, words) {
  for (;;) {
    const status = await get(`${base}/requests/${request}`);
    if (status.state === "done") {
      showComparison(status.result, words);
      return;
    }
    if (status.state === "failed" || status.state === "cancelled") {
      outcome.replaceChildren(h("p", {}, status.state === "failed" ? status.error : "Cancelled."));
      return;
    }
    outcome.replaceChildren(
      h("progress", { max: 1, value: status.progress, "aria-label": "Comparison" }),
      h("p", { class: "quiet" }, status.warning || status.note || "Queued."),
    );
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/**
 * @param {import("../types").FitResult} result
 * @param {string} words
 */
function showComparison(result, words) {
  const { held_out: held } = result;
  if (!held?.without || !held?.with) {
    outcome.replaceChildren(h("p", {}, "There are too few answers to random queries for a comparison."));
    return;
  }
  /** @type {(fitted: string, judged: string, estimate: import("../types").Estimate) => HTMLElement} */
  const row = (fitted, judged, estimate) => h("tr", {}, h("th", { scope: "row" }, fitted), h("td", {}, judged), h("td", { class: "number" }, percent(estimate.accuracy, 1)), h("td", { class: "number" }, `${percent(estimate.low, 1)} to ${percent(estimate.high, 1)}`));
  const others = `the ${number(held.kept_answers)} random answers of the others`;
  const accuracies = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Fitted to"), h("th", { scope: "col" }, "Judged on"), h("th", { scope: "col", class: "number" }, "Held-out accuracy"), h("th", { scope: "col", class: "number" }, "95 % interval"))),
    h("tbody", {}, row("all participants", `all ${number(held.answers)} random answers, as on the overview`, held.everybody), row("all participants", others, held.with), row(`without the ${words}`, others, held.without)),
  );
  outcome.replaceChildren(
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Accuracy with and without them" }, accuracies),
    h("p", {}, describeChange(held.change)),
    result.excluded?.accuracy ? h("p", { class: "quiet" }, `The embedding fitted without them predicts ${percent(result.excluded.accuracy)} of their ${short(result.excluded.answers)} answers.`) : "",
  );
}

/** @param {import("../types").Estimate} change */
function describeChange(change) {
  if (!change) return "";
  const points = (value) => (100 * value).toFixed(1).replace("-", "−");
  if (change.low > 0) return `Leaving them out increases the accuracy on the answers of the others by ${points(change.accuracy)} percentage points (95 % interval: ${points(change.low)} to ${points(change.high)}).`;
  if (change.high < 0) return `Leaving them out decreases the accuracy on the answers of the others by ${points(-change.accuracy)} percentage points: their answers improve the embedding.`;
  return `There is no clear difference: ${points(change.accuracy)} percentage points (95 % interval: ${points(change.low)} to ${points(change.high)}).`;
}

selection.hidden = !mayEdit;
$("#close-answers").addEventListener("click", () => ($("#answers").hidden = true));
showSelection([]);
await read();
