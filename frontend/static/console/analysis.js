// The analysis page: plan a study by simulated ones, choose the dimension and the noise model, write a report.

import { at, Failure, get, post, remove } from "./api.js";
import { $, copy, count, data, h, number, percent, save, showCopies } from "./dom.js";
import { Figure } from "./figure.js";

const AGAIN_MS = 700;
const NOISE = { PowerTSTE: "power t-STE (learned)", TSTE: "t-STE", STE: "STE", CKL: "CKL", SOE: "SOE", GNMDS: "GNMDS" };
const RANDOM = "random queries";

showCopies();
/** @type {import("../types").AnalysisData} */
const { slug, may_edit: mayEdit, targets, d, currency, races, names: targetNames } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);

/** Follow a request until it ends; `seen` hears of every status. Returns the last one. */
async function follow(request, seen) {
  for (;;) {
    const status = await get(`${base}/requests/${request}`);
    seen(status);
    if (["done", "failed", "cancelled"].includes(status.state)) return status;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** One kind of request with its form, progress and Cancel; what is shown is that of the newest. */
class Asked {
  #running = null;

  constructor(kind, { form, progress, cancel, show }) {
    this.kind = kind;
    this.progress = progress;
    this.cancel = cancel;
    this.show = show;
    cancel.addEventListener("click", () => this.stop());
    form.hidden = !mayEdit;
    if (!mayEdit) form.after(progress);
  }

  /** Show the newest result that the server still keeps; return its arguments. */
  async showKept() {
    const kept = (await get(`${base}/requests`)).find(({ kind, state }) => kind === this.kind && state !== "failed" && state !== "cancelled");
    if (!kept) return null;
    this.#watch(kept.request);
    return kept.arguments;
  }

  async ask(values) {
    await this.stop();
    try {
      const { request } = await post(`${base}/requests`, { kind: this.kind, arguments: values });
      await this.#watch(request);
    } catch (error) {
      this.#fail(error);
    }
  }

  async stop() {
    const running = this.#running;
    this.#running = null;
    this.cancel.hidden = true;
    if (running) await remove(`${base}/requests/${running}`).catch(() => {});
  }

  async #watch(request) {
    this.#running = request;
    this.cancel.hidden = !mayEdit;
    try {
      const ended = await follow(request, (status) => {
        if (this.#running !== request) return;
        if (status.result) this.show(status.result);
        this.progress.replaceChildren(h("progress", { max: 1, value: status.progress, "aria-label": "Progress" }), ` ${status.warning || status.note || "Queued."}`);
      });
      if (this.#running !== request) return;
      this.progress.textContent = ended.state === "failed" ? ended.error : ended.state === "cancelled" ? "Cancelled." : "";
    } catch (error) {
      this.#fail(error);
    } finally {
      if (this.#running === request) {
        this.#running = null;
        this.cancel.hidden = true;
      }
    }
  }

  #fail(error) {
    if (!(error instanceof Failure)) throw error;
    this.progress.textContent = [error.message, ...error.problems.map(({ sentence }) => sentence), error.hint].filter(Boolean).join(" ");
  }
}

// Plan

/** What is assumed: name, label, positions of the slider, and how one is said. */
const ASSUMED = [
  ["targets", "Targets", [4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300], number],
  ["d", "Dimensions", [1, 2, 3, 4, 5, 6], number],
  ["people", "People tell distances apart", ["hard", "typical", "clear"], (value) => ({ hard: "half as well as typical people", typical: "as people did with alien eggs", clear: "twice as well as typical people" })[value]],
  ["lapse", "Answers without looking", [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3], (value) => percent(value)],
  ["accuracy", "Accuracy to reach", [null, 0.6, 0.65, 0.7, 0.72, 0.74, 0.76, 0.78, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9], (value) => (value === null ? "what is usual" : percent(value))],
  ["seconds", "Seconds an answer", [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15], (value) => `${value} s`],
  ["pay", "Pay an hour", [0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 25, 30], (value) => (value === 0 ? "not counted" : `${value} ${currency}`)],
];
const START = { targets, d, people: "typical", lapse: 0, accuracy: null, seconds: 3, pay: 0 };
/** @type {Record<string, { input: HTMLInputElement, positions: any[], set: (value: any) => void }>} */
const sliders = {};

for (const [name, label, known, say] of /** @type {[string, string, any[], (value: any) => string][]} */ (ASSUMED)) {
  const own = START[name];
  const positions = known.includes(own) ? known : [...known, own].sort((one, other) => one - other);
  const said = h("output", {});
  const input = h("input", { type: "range", min: 0, max: positions.length - 1, step: 1, "aria-label": label, "data-assumed": name });
  const show = () => {
    const words = say(positions[Number(input.value)]);
    said.textContent = words;
    input.setAttribute("aria-valuetext", words);
  };
  input.addEventListener("input", show);
  input.addEventListener("change", () => plan.ask(assumed()));
  const set = (value) => {
    if (!positions.includes(value)) return;
    input.value = String(positions.indexOf(value));
    show();
  };
  set(own);
  sliders[name] = { input, positions, set };
  $("#assumed").append(h("label", { class: "slider" }, h("span", {}, label), input, said));
}

const assumed = () => Object.fromEntries(Object.entries(sliders).map(([name, { input, positions }]) => [name, positions[Number(input.value)]]));

const band = (curves, answers, name, colour) => [
  { name, type: "line", showSymbol: false, color: colour, lineStyle: { width: 2 }, data: answers.map((many, place) => [many, curves.mean[place]]), z: 3 },
  { name: `${name} low`, type: "line", stack: name, stackStrategy: "all", showSymbol: false, lineStyle: { opacity: 0 }, data: answers.map((many, place) => [many, curves.low[place]]), silent: true, tooltip: { show: false } },
  { name: `${name} band`, type: "line", stack: name, stackStrategy: "all", showSymbol: false, lineStyle: { opacity: 0 }, areaStyle: { color: colour, opacity: 0.16 }, data: answers.map((many, place) => [many, curves.low[place] === null ? null : curves.high[place] - curves.low[place]]), silent: true, tooltip: { show: false } },
];

const figure = new Figure({
  name: "plan",
  title: "Accuracy against answers",
  sentence: "Lines are means over simulated studies; a band holds 80 % of them. The dashed line is what the truth itself predicts: people disagree too much for more.",
  emptyText: "Appears with the first simulated study.",
  height: 320,
  option({ answers, accuracy, best_possible: best }, colour) {
    const names = Object.keys(accuracy);
    const colours = [colour.second, colour.first];
    return {
      legend: { top: 0, textStyle: { color: colour.ink }, data: names },
      grid: { left: 56, right: 24, top: 40, bottom: 48 },
      xAxis: { type: "value", name: "answers", nameGap: 30, min: 0, max: answers.at(-1), axisLabel: { formatter: number } },
      yAxis: { type: "value", min: 0.5, max: 1, axisLabel: { formatter: (value) => percent(value) } },
      tooltip: {
        trigger: "axis",
        confine: true,
        formatter: ([first]) => {
          const place = answers.indexOf(first.value[0]);
          return [`${number(answers[place])} answers`, ...names.map((name) => `${name}: ${percent(accuracy[name].mean[place], 1)} (${percent(accuracy[name].low[place], 1)} to ${percent(accuracy[name].high[place], 1)})`)].join("<br>");
        },
      },
      series: [
        ...names.flatMap((name, place) => band(accuracy[name], answers, name, colours[place])),
        { name: "possible", type: "line", showSymbol: false, color: colour.quiet, lineStyle: { type: "dashed", width: 1 }, data: [[0, best], [answers.at(-1), best]], silent: true },
      ],
    };
  },
  rows: ({ answers, accuracy }) => [
    ["answers", ...Object.keys(accuracy).flatMap((name) => [name, `${name}: low`, `${name}: high`])],
    ...answers.map((many, place) => [many, ...Object.values(accuracy).flatMap(({ mean, low, high }) => [mean[place], low[place], high[place]])]),
  ],
});
$("#plan-figure").append(figure.element);
figure.element.classList.remove("card");

function showPlan(found) {
  figure.show(found);
  const { accuracy: level, ...needed } = found.to_reach;
  const paid = Object.values(needed).some(({ middle }) => middle?.money > 0);
  const cells = ({ middle, low, high }) => {
    if (!middle) return [h("td", { colspan: paid ? 4 : 3 }, `not reached within ${number(found.answers.at(-1))} answers`)];
    const interval = `${number(low?.answers)} to ${high ? number(high.answers) : `more than ${number(found.answers.at(-1))}`}`;
    return [
      h("td", { class: "number" }, `${number(middle.answers)} `, h("span", { class: "quiet" }, `(${interval})`)),
      h("td", { class: "number" }, number(middle.participants)),
      h("td", { class: "number" }, middle.hours.toFixed(1)),
      paid ? h("td", { class: "number" }, `${number(middle.money)} ${currency}`) : "",
    ];
  };
  const heads = ["Answers (80 % of studies)", "Participants", "Hours in all", ...(paid ? ["Pay"] : [])];
  $("#plan-needed").replaceChildren(
    h("h3", {}, `To reach an accuracy of ${percent(level, 1)}`),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "What an accuracy takes" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Queries"), ...heads.map((head) => h("th", { scope: "col", class: "number" }, head)))),
        h("tbody", {}, ...Object.entries(needed).map(([name, one]) => h("tr", { "data-contender": name }, h("th", { scope: "row" }, name === RANDOM ? "at random" : `by ${name}`), ...cells(one)))),
      ),
    ),
    h("p", { class: "quiet" }, `From ${count(found.runs, "simulated study", "simulated studies")} of ${number(found.targets)} targets in ${count(found.dimensions, "dimension")}; at most ${percent(found.best_possible, 1)} of answers can be predicted. A participant gives ${number(found.participant.answers)} answers in about ${Math.round(found.participant.minutes)} minutes.`),
  );
  const open = new Set([...$("#plan-texts").querySelectorAll("details[open]")].map(({ dataset }) => dataset.text));
  $("#plan-texts").replaceChildren(
    ...[["ethics", "Paragraph for an ethics board"], ["preregistration", "Paragraph for a preregistration"]].map(([name, title]) =>
      h(
        "details",
        { "data-text": name, open: open.has(name) },
        h("summary", {}, title),
        h("p", {}, found.texts[name]),
        h("button", { type: "button", class: "plain", onclick: (event) => copy(event.target, found.texts[name]) }, "Copy"),
      ),
    ),
  );
}

const plan = new Asked("plan", { form: $("#plan"), progress: $("#plan-progress"), cancel: $("#cancel-plan"), show: showPlan });
$("#plan").addEventListener("submit", (event) => {
  event.preventDefault();
  plan.ask(assumed());
});

// Race

const points = (share) => `${(100 * share).toFixed(1).replace("-", "−")}`;

const course = new Figure({
  name: "race",
  title: "Lead against held-out answers",
  sentence: "By how much one sampler's maps predict more of the held-out answers than another's, in percentage points. The interval is valid at all looks together.",
  emptyText: "Appears when each sampler has as many answers as there are targets.",
  height: 280,
  option({ leads }, colour) {
    const colours = [colour.first, colour.second, colour.third];
    const named = (lead) => `${lead.first} before ${lead.second}`;
    const last = leads[0].course.at(-1)?.[0] ?? 1;
    return {
      legend: { top: 0, textStyle: { color: colour.ink }, data: leads.map(named) },
      grid: { left: 56, right: 24, top: 40, bottom: 48 },
      xAxis: { type: "value", name: "held-out answers", nameGap: 30, min: 0, max: last, axisLabel: { formatter: number } },
      yAxis: { type: "value", name: "points", axisLabel: { formatter: points } },
      tooltip: { trigger: "axis", confine: true, formatter: ([first]) => leads.map((lead) => {
        const [, middle, low, high] = lead.course.find(([many]) => many === first.value[0]) ?? lead.course.at(-1);
        return `${named(lead)}: ${points(middle)} (${points(low)} to ${points(high)})`;
      }).join("<br>") },
      series: [
        ...leads.flatMap((lead, place) => {
          const shown = lead.course.filter(([, , low, high]) => high - low < 0.5);
          const curve = (pick) => shown.map((row) => [row[0], row[pick]]);
          const line = { type: "line", showSymbol: false, color: colours[place % 3] };
          return [
            { ...line, name: named(lead), data: curve(1), lineStyle: { width: 2 }, z: 3 },
            { ...line, name: `${named(lead)} low`, data: curve(2), lineStyle: { width: 1, type: "dashed" }, silent: true },
            { ...line, name: `${named(lead)} high`, data: curve(3), lineStyle: { width: 1, type: "dashed" }, silent: true },
          ];
        }),
        { type: "line", showSymbol: false, color: colour.quiet, lineStyle: { width: 1 }, data: [[0, 0], [last, 0]], silent: true },
      ],
    };
  },
  rows: ({ leads }) => [
    ["first", "second", "held-out answers", "lead", "low", "high"],
    ...leads.flatMap(({ first, second, course: rows }) => rows.map((row) => [first, second, ...row])),
  ],
});
course.element.classList.remove("card");
$("#race-figure").append(course.element);

function showRace(found) {
  if (found.judged) course.show(found);
  $("#race-verdict").replaceChildren(
    ...found.leads.map((lead) => h("p", { "data-lead": `${lead.first}/${lead.second}`, "data-ahead": lead.ahead }, lead.ahead ? h("b", {}, lead.sentence) : lead.sentence)),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Samplers of the race" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...["Sampler", "Answers", "Held-out accuracy"].map((head) => h("th", { scope: "col" }, head)))),
        h(
          "tbody",
          {},
          ...found.names.map((name, place) =>
            h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, number(found.answers[place])), h("td", { class: "number" }, found.judged ? percent(found.accuracy[place], 1) : "–")),
          ),
        ),
      ),
    ),
    h("p", { class: "quiet" }, `Judged on ${number(found.judged)} of ${number(found.held_out)} held-out answers; the newest maps were fitted to ${number(found.learned)} answers each.`),
  );
}

$("#race-card").hidden = !races;
const race = new Asked("race", { form: $("#race"), progress: $("#race-progress"), cancel: $("#cancel-race"), show: showRace });
$("#race").addEventListener("submit", (event) => {
  event.preventDefault();
  race.ask({});
});

// Choose

const boxes = (place, values, checked) =>
  $(place).append(...values.map(([value, label]) => h("label", { class: "inline check" }, h("input", { type: "checkbox", value, checked: checked.includes(value) }), label)));
boxes("#dimensions", [1, 2, 3, 4, 5].map((value) => [String(value), String(value)]), ["1", "2", "3"]);
boxes("#noise", Object.entries(NOISE), ["PowerTSTE", "STE", "CKL"]);
const ticked = (place) => [...document.querySelectorAll(`${place} input:checked`)].map((input) => /** @type {HTMLInputElement} */ (input).value);

function showChoice(found) {
  const { candidates, dimension, ceiling, ties } = found;
  const isChosen = (one) => one.d === dimension.chosen && one.noise.name === dimension.noise;
  const isTied = (one) => ties.some((tie) => tie.d === one.d && tie.noise === one.noise.name);
  const sorted = [...candidates].sort((one, other) => other.accuracy - one.accuracy);
  $("#choice").replaceChildren(
    h("p", {}, h("b", {}, `${count(dimension.chosen, "dimension")}, ${NOISE[dimension.noise] ?? dimension.noise}. `), dimension.reason),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dimensions and noise models compared" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...["Dimensions", "Noise model", "Held-out accuracy", "95 % interval", "Behind the best", "Verdict"].map((head) => h("th", { scope: "col" }, head)))),
        h(
          "tbody",
          {},
          ...sorted.map((one) =>
            h(
              "tr",
              { class: isChosen(one) ? "chosen" : null },
              h("th", { scope: "row" }, number(one.d)),
              h("td", {}, NOISE[one.noise.name] ?? one.noise.name),
              h("td", { class: "number" }, percent(one.accuracy, 1)),
              h("td", { class: "number" }, `${percent(one.low, 1)} to ${percent(one.high, 1)}`),
              h("td", { class: "number" }, one.behind > 0 ? `${(100 * one.behind).toFixed(1)} ± ${(100 * one.behind_error).toFixed(1)} points` : "–"),
              h("td", {}, isChosen(one) ? "chosen" : isTied(one) ? "cannot be told from the best" : ""),
            ),
          ),
        ),
      ),
    ),
    h("p", { class: "quiet" }, `Judged on ${number(found.judged)} of ${number(found.answers)} answers, those to random queries, in ${found.folds} folds. ${ceiling ? `Noise ceiling: ${percent(ceiling.ceiling.value, 1)}; people disagree too much for more.` : ""}`),
  );
}

const choose = new Asked("cross_validation", { form: $("#choose"), progress: $("#choose-progress"), cancel: $("#cancel-choose"), show: showChoice });
$("#choose").addEventListener("submit", (event) => {
  event.preventDefault();
  choose.ask({ dimensions: ticked("#dimensions").map(Number), noise: ticked("#noise") });
});

// Groups

/** A map of one group, on the same axes and scale as those beside it. */
const mapOf = (which, reach) => {
  const drawn = new Figure({
    name: `group-${which}`,
    title: `Group ${which}`,
    sentence: "Laid over the shared map, so that a target that lies elsewhere is seen differently.",
    emptyText: "",
    height: 276,
    option: ({ rows }, colour) => ({
      grid: { left: "center", top: 8, width: 260, height: 260 }, // square, so that distances are as they are
      xAxis: { type: "value", min: -reach, max: reach, show: false },
      yAxis: { type: "value", min: -reach, max: reach, show: false },
      tooltip: { trigger: "item", confine: true, formatter: ({ dataIndex }) => rows[dataIndex][0] },
      series: [
        {
          type: "scatter",
          symbolSize: 6,
          color: colour.first,
          data: rows.map(([, x, y]) => [x, y]),
          label: { show: true, position: "right", color: colour.ink, fontSize: 11, formatter: ({ dataIndex }) => rows[dataIndex][0] },
          labelLayout: { hideOverlap: true },
        },
      ],
    }),
    rows: ({ rows }) => [["target", "x", "y"], ...rows],
  });
  drawn.element.classList.remove("card");
  return drawn;
};

const matrix = (label, values, show) =>
  h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("caption", {}, label),
      h("thead", {}, h("tr", {}, h("td", {}), ...values.map((_, place) => h("th", { scope: "col", class: "number" }, `Group ${place + 1}`)))),
      h("tbody", {}, ...values.map((row, place) => h("tr", {}, h("th", { scope: "row" }, `Group ${place + 1}`), ...row.map((value, other) => h("td", { class: "number" }, place === other ? "–" : show(value)))))),
    ),
  );

const people = new Figure({
  name: "people",
  title: "Agreement between people",
  sentence: "Procrustes correlation between the maps of each two people, in the order of groups: 1 where they have one shape. A person's map is held to the shared one, so that few answers change it little.",
  emptyText: "",
  height: 380,
  option: ({ people: names, agreement: rows }, colour) => ({
    grid: { left: 8, right: 90, top: 8, bottom: 8 },
    xAxis: { type: "category", data: names, show: false },
    yAxis: { type: "category", data: names, inverse: true, show: false },
    tooltip: { confine: true, formatter: ({ value: [one, other, value] }) => `${names[one]} and ${names[other]}: ${value.toFixed(2)}` },
    visualMap: { min: Math.min(...rows.flat()), max: 1, precision: 2, right: 0, top: "middle", textStyle: { color: colour.ink }, inRange: { color: [colour.background, colour.first] } },
    series: [{ type: "heatmap", data: rows.flatMap((row, one) => row.map((value, other) => [one, other, value])) }],
  }),
  rows: ({ people: names, agreement: rows }) => [["participant", ...names], ...rows.map((row, place) => [names[place], ...row])],
});
people.element.classList.remove("card");

function showGroups(found) {
  const { count: many, losses, errors, people: placed } = found;
  const lowest = Math.min(...losses);
  const largest = found.p ? Math.max(...found.p.flatMap((row, place) => row.filter((_, other) => other > place))) : null;
  const tested = many > 1 && `${largest <= 0.05 ? "Every pair of maps differs more than those of shuffled groups" : "Not every pair of maps differs more than those of shuffled groups"} (p at most ${largest.toFixed(3)}, ${found.shuffles} shuffles).`;
  $("#groups-found").replaceChildren(
    h("p", { id: "groups-verdict" }, h("b", {}, many === 1 ? "No split: people fall into one group. " : `People fall into ${many} groups. `), tested || "Maps of their own predict held-out answers no better."),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of groups compared" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...["Groups", "Held-out loss (nats an answer)", "Above the best", "Verdict"].map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...losses.map((loss, place) => h("tr", { class: place + 1 === many ? "chosen" : null }, h("th", { scope: "row" }, number(place + 1)), h("td", { class: "number" }, loss.toFixed(4)), h("td", { class: "number" }, loss > lowest ? `${(loss - lowest).toFixed(4)} ± ${errors[place].toFixed(4)}` : "–"), h("td", {}, place + 1 === many ? "chosen" : "")))),
      ),
    ),
    ...(many > 1
      ? [
          matrix("Procrustes correlation of the groups' maps", found.agreement, (value) => value.toFixed(2)),
          matrix("How rarely shuffled names leave as much apart (p)", found.p, (value) => value.toFixed(3)),
          matrix("Share of all queries that the maps answer alike", found.same_answers, (value) => percent(value, 1)),
          ...found.maps.map((_, group) => {
            const own = placed.filter((one) => one.group === group);
            return h("details", {}, h("summary", {}, `Group ${group + 1}: ${count(own.length, "person", "people")}`), h("p", {}, own.map(({ participant, answers, placed: enough }) => `${participant} (${number(answers)} answers${enough ? "" : ", too few to be placed surely"})`).join(", ")));
          }),
        ]
      : []),
    h("p", { class: "quiet" }, `${number(placed.length)} people, ${number(found.answers)} answers.${many > 1 ? " The test forms the groups anew from one half of each person's answers and compares their maps on the other half." : ""}`),
  );
  const shown = many > 1 ? found.maps : [];
  const reach = 1.15 * Math.max(0.01, ...shown.flat(2).map(Math.abs));
  $("#group-maps").replaceChildren(
    ...shown.map((own, group) => {
      const drawn = mapOf(group + 1, reach);
      drawn.show({ rows: own.map(([x, y = 0], place) => [targetNames[place] ?? String(place), x, y]) });
      return drawn.element;
    }),
  );
  $("#people-agreement").replaceChildren(...(found.compared && many > 1 ? [people.element] : []));
  if (found.compared && many > 1) people.show(found.compared);
}

const grouping = new Asked("groups", { form: $("#groups"), progress: $("#groups-progress"), cancel: $("#cancel-groups"), show: showGroups });
$("#groups").addEventListener("submit", (event) => {
  event.preventDefault();
  grouping.ask({ most: Number($("#most-groups").value) });
});

// Report

let writing = null;
$("#write-report").addEventListener("click", async () => {
  const told = $("#report-progress");
  writing = new AbortController();
  $("#write-report").disabled = true;
  $("#cancel-report").hidden = false;
  told.textContent = "Fitting and judging: this takes up to a minute.";
  try {
    const reply = await fetch(at(`${base}/exports/report.html`), { signal: writing.signal });
    if (!reply.ok) throw new Failure((await reply.json()).error, reply.status);
    save(`${slug}-report.html`, await reply.blob());
    told.textContent = `${slug}-report.html was saved.`;
  } catch (error) {
    if (error instanceof Failure) told.textContent = `${error.message} ${error.hint}`;
    else told.textContent = error.name === "AbortError" ? "Cancelled." : "The server does not respond. Try again in a moment.";
  } finally {
    $("#write-report").disabled = false;
    $("#cancel-report").hidden = true;
  }
});
$("#cancel-report").addEventListener("click", () => writing?.abort());

const kept = await plan.showKept();
if (kept) for (const [name, value] of Object.entries(kept)) sliders[name]?.set(value);
if (races) await race.showKept();
await grouping.showKept();
await choose.showKept();
