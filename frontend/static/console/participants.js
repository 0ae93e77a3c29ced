// Who took part, how well, and whose answers are left out.

import { Failure, get, post, put, remove } from "./api.js";
import { $, data, duration, h, milliseconds, number, percent, short, showCopies, time } from "./dom.js";
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
    { name: "keep", label: "Kept", value: (row) => (row.keep ? "kept" : "excluded"), show: (row) => decision(row) },
    {
      name: "reasons",
      label: "Why look",
      value: (row) => row.flags.map(({ reason }) => reason).join(" "),
      show: (row) => (row.flags.length ? h("ul", { class: "reasons" }, ...row.flags.map((flag) => h("li", { class: flag.excludes ? "excludes" : null }, flag.reason))) : ""),
    },
    { name: "status", label: "Status", value: (row) => row.status },
    { name: "answers", label: "Answers", number: true, value: (row) => row.answers, show: (row) => number(row.answers) },
    { name: "geometric_mean_rt_ms", label: "Time an answer", help: "Geometric mean of the response times", number: true, value: figure("geometric_mean_rt_ms"), show: (row) => milliseconds(figure("geometric_mean_rt_ms")(row)) },
    share("fast_share", "Under 300 ms", "Share of answers that came sooner than anybody can look"),
    share("left_share", "Left", "Share of answers that chose the left side"),
    { name: "longest_run", label: "Longest run", help: "The same side again and again", number: true, value: figure("longest_run") },
    share("catch_accuracy", "Catch", "Share of catch trials answered rightly"),
    share("agreement", "Agreement", "With the majority of the others, on queries that everybody got"),
    share("repeat_consistency", "Repeats", "Share of repeated queries that were answered as before"),
    share("fit_accuracy", "Fit", "Share of the answers that the group's map predicts"),
    {
      name: "took_ms",
      label: "Took",
      number: true,
      help: "From the first opening of the link to the end",
      value: (row) => (row.completed_ms ? row.completed_ms - row.first_ms : null),
      show: (row) => (row.completed_ms ? duration(row.completed_ms - row.first_ms) : "–"),
    },
    { name: "first_ms", label: "Came", value: (row) => row.first_ms, show: (row) => time(row.first_ms) },
    { name: "note", label: "Note", value: (row) => row.note },
  ],
  { name: `${slug}-participants`, label: "Participants", key: (row) => row.participant },
);
$("#table").append(table.element);

function decision(row) {
  const proposal = row.keep_auto ? "keep" : "exclude";
  const choice = h(
    "select",
    { "aria-label": `Keep ${row.puid}?`, onchange: (event) => decide(row, event.target.value) },
    h("option", { value: "auto" }, `as proposed: ${proposal}`),
    h("option", { value: "keep" }, "keep, by hand"),
    h("option", { value: "exclude" }, "exclude, by hand"),
  );
  choice.value = row.keep_manual || "auto";
  return h("span", { class: row.keep ? "kept" : "excluded" }, h("b", { class: "block" }, row.keep ? "✓ kept" : "✕ excluded"), choice);
}

async function decide(row, keep) {
  const note = keep === "auto" ? "" : (prompt(`Why ${keep} ${row.puid}? The note stands in every file.`, row.note) ?? null);
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

/** All participants; where figures are still being found, those of the last time are shown until the new ones are there. */
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
  $("#as-of").textContent = `${number(people.length)} participants, ${number(excluded)} excluded. ${reply.fresh ? "" : "New answers are being judged…"}`;
  $("#compare").disabled = excluded === 0 || samplers.length === 0;
  if (!reply.fresh) setTimeout(read, AGAIN_MS);
}

const outcome = $("#comparison");
let asked = null;

$("#compare").addEventListener("click", async () => {
  if (asked) {
    await remove(`${base}/requests/${asked}`);
    return;
  }
  const exclude = people.filter(({ keep }) => !keep).map(({ participant }) => participant);
  try {
    const { request } = await post(`${base}/requests`, { kind: "fit", arguments: { exclude, sampler: samplers[0] } });
    asked = request;
    $("#compare").textContent = "Cancel";
    await follow(request, exclude.length);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    outcome.replaceChildren(h("p", { class: "failed" }, `${error.message} ${error.hint}`));
  } finally {
    asked = null;
    $("#compare").textContent = "Compare";
  }
});

async function follow(request, excluded) {
  for (;;) {
    const standing = await get(`${base}/requests/${request}`);
    if (standing.state === "done") {
      showComparison(standing.result, excluded);
      return;
    }
    if (standing.state === "failed" || standing.state === "cancelled") {
      outcome.replaceChildren(h("p", {}, standing.state === "failed" ? standing.error : "It was cancelled."));
      return;
    }
    outcome.replaceChildren(
      h("progress", { max: 1, value: standing.progress, "aria-label": "Comparison" }),
      h("p", { class: "quiet" }, standing.warning || standing.note || "It waits for its turn."),
    );
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function showComparison(result, excluded) {
  const { held_out: held } = result;
  if (!held?.without || !held?.with) {
    outcome.replaceChildren(h("p", {}, "There are too few answers to random queries to judge by."));
    return;
  }
  const row = (label, estimate) => h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "number" }, percent(estimate.value, 1)), h("td", { class: "number" }, `${percent(estimate.low, 1)} to ${percent(estimate.high, 1)}`));
  outcome.replaceChildren(
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Fitted on"), h("th", { scope: "col", class: "number" }, "Held-out accuracy"), h("th", { scope: "col", class: "number" }, "95 % interval"))),
      h("tbody", {}, row("everybody", held.with), row(`all but the ${number(excluded)} excluded`, held.without)),
    ),
    h("p", {}, sentence(held.change)),
    result.excluded?.accuracy ? h("p", { class: "quiet" }, `The map of the others predicts ${percent(result.excluded.accuracy.value ?? result.excluded.accuracy)} of the ${short(result.excluded.answers)} excluded answers.`) : "",
  );
}

function sentence(change) {
  if (!change) return "";
  const points = (value) => `${(100 * value).toFixed(1)} points`;
  if (change.low > 0) return `Leaving them out makes the map better by ${points(change.value)} (${points(change.low)} to ${points(change.high)}).`;
  if (change.high < 0) return `Leaving them out makes the map worse by ${points(-change.value)}: their answers help.`;
  return `The difference is not clear: ${points(change.value)}, between ${points(change.low)} and ${points(change.high)}.`;
}

await read();
