// The participants page: quality figures, flags and exclusions.

import { Failure, get, post, put, remove } from "./api.js";
import { $, count, data, duration, h, milliseconds, number, percent, short, showCopies, time } from "./dom.js";
import { Table } from "./table.js";

const AGAIN_MS = 1500;
const PAGE = 5000;

showCopies();
const { slug, samplers } = data();
const base = `/api/experiments/${slug}`;
let people = [];

const figure = (name) => (row) => row.figures?.[name] ?? null;
const share = (name, label, help) => ({
  name,
  label,
  help,
  number: true,
  value: figure(name),
  show: (row) => percent(figure(name)(row)),
});

const table = new Table(
  [
    {
      name: "puid",
      label: "Participant",
      value: (row) => row.puid,
      show: (row) => h("span", {}, row.puid, h("span", { class: "quiet block" }, row.source), h("span", { class: "quiet block" }, row.participant)),
    },
    { name: "keep", label: "Decision", value: (row) => (row.keep ? "kept" : "excluded"), show: (row) => decisionCell(row) },
    {
      name: "reasons",
      label: "Flags",
      value: (row) => row.flags.map(({ reason }) => reason).join(" "),
      show: (row) => (row.flags.length ? h("ul", { class: "reasons" }, ...row.flags.map((flag) => h("li", { class: flag.excludes ? "excludes" : null }, flag.reason))) : ""),
    },
    { name: "status", label: "Status", value: (row) => row.status },
    { name: "answers", label: "Answers", number: true, value: (row) => row.answers, show: (row) => number(row.answers) },
    { name: "geometric_mean_rt_ms", label: "Response time", help: "Geometric mean of the response times", number: true, value: figure("geometric_mean_rt_ms"), show: (row) => milliseconds(figure("geometric_mean_rt_ms")(row)) },
    share("fast_share", "Under 300 ms", "Share of answers given in less than 300 ms"),
    share("left_share", "Left", "Share of answers on the left side"),
    { name: "longest_run", label: "Longest run", help: "Longest sequence of answers on the same side", number: true, value: figure("longest_run") },
    share("catch_accuracy", "Catch trials", "Share of catch trials answered correctly"),
    share("agreement", "Agreement", "Share of shared queries answered like the majority"),
    share("repeat_consistency", "Consistency", "Share of repeated queries answered the same way"),
    share("fit_accuracy", "Fit", "Share of answers that the embedding predicts"),
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
  { name: `${slug}-participants`, label: "Participants", key: (row) => row.participant },
);
$("#table").append(table.element);

function decisionCell(row) {
  const proposal = row.keep_auto ? "keep" : "exclude";
  const choice = h(
    "select",
    { "aria-label": `Decision for ${row.puid}`, onchange: (event) => decide(row, event.target.value) },
    h("option", { value: "auto" }, `automatic: ${proposal}`),
    h("option", { value: "keep" }, "keep (manual)"),
    h("option", { value: "exclude" }, "exclude (manual)"),
  );
  choice.value = row.keep_manual || "auto";
  return h("span", { class: row.keep ? "kept" : "excluded" }, h("b", { class: "block" }, row.keep ? "✓ kept" : "✕ excluded"), choice);
}

async function decide(row, keep) {
  const note = keep === "auto" ? "" : (prompt(`Why do you ${keep} ${row.puid}? Your note is included in every export.`, row.note) ?? null);
  if (note !== null) {
    try {
      await put(`${base}/participants/${row.participant}`, { keep, note });
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      $("#as-of").textContent = `${error.message} ${error.hint}`;
      return;
    }
  }
  await read();
}

/** Read and show all participants; while figures are being computed, show the previous ones and read again. */
async function read() {
  let reply;
  const rows = [];
  do {
    reply = await get(`${base}/participants?offset=${rows.length}&limit=${PAGE}`);
    rows.push(...reply.participants);
  } while (rows.length < reply.total && reply.participants.length > 0);
  people = rows;
  table.show(people);
  const excluded = people.filter(({ keep }) => !keep).length;
  $("#as-of").textContent = `${count(people.length, "participant")}, ${number(excluded)} excluded. ${reply.fresh ? "" : "Updating the figures for new answers…"}`;
  $("#compare").disabled = excluded === 0 || samplers.length === 0;
  if (!reply.fresh) setTimeout(read, AGAIN_MS);
}

const outcome = $("#comparison");
let running = null;

$("#compare").addEventListener("click", async () => {
  if (running) {
    await remove(`${base}/requests/${running}`);
    return;
  }
  const exclude = people.filter(({ keep }) => !keep).map(({ participant }) => participant);
  try {
    const { request } = await post(`${base}/requests`, { kind: "fit", arguments: { exclude, sampler: samplers[0] } });
    running = request;
    $("#compare").textContent = "Cancel";
    await follow(request, exclude.length);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    outcome.replaceChildren(h("p", { class: "failed" }, `${error.message} ${error.hint}`));
  } finally {
    running = null;
    $("#compare").textContent = "Compare";
  }
});

async function follow(request, excluded) {
  for (;;) {
    const status = await get(`${base}/requests/${request}`);
    if (status.state === "done") {
      showComparison(status.result, excluded);
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

function showComparison(result, excluded) {
  const { held_out: held } = result;
  if (!held?.without || !held?.with) {
    outcome.replaceChildren(h("p", {}, "There are too few answers to random queries for a comparison."));
    return;
  }
  const row = (label, estimate) => h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "number" }, percent(estimate.value, 1)), h("td", { class: "number" }, `${percent(estimate.low, 1)} to ${percent(estimate.high, 1)}`));
  outcome.replaceChildren(
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Fitted on"), h("th", { scope: "col", class: "number" }, "Held-out accuracy"), h("th", { scope: "col", class: "number" }, "95 % interval"))),
      h("tbody", {}, row("all participants", held.with), row(`without the ${number(excluded)} excluded`, held.without)),
    ),
    h("p", {}, describeChange(held.change)),
    result.excluded?.accuracy ? h("p", { class: "quiet" }, `The embedding fitted without them predicts ${percent(result.excluded.accuracy.value ?? result.excluded.accuracy)} of the ${short(result.excluded.answers)} excluded answers.`) : "",
  );
}

function describeChange(change) {
  if (!change) return "";
  const points = (value) => `${(100 * value).toFixed(1)} percentage points`;
  if (change.low > 0) return `Excluding them increases accuracy by ${points(change.value)} (95 % interval: ${points(change.low)} to ${points(change.high)}).`;
  if (change.high < 0) return `Excluding them decreases accuracy by ${points(-change.value)}: their answers improve the embedding.`;
  return `There is no clear difference: ${points(change.value)} (95 % interval: ${points(change.low)} to ${points(change.high)}).`;
}

await read();
