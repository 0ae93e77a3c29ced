// The map page: chooses embeddings, groups and selections, and saves files.

import { Failure, at, download, get, post } from "./api.js";
import { $, copy, count, data, h, number, percent, save, showCopies, svg, time } from "./dom.js";
import { MapDrawing } from "./map_drawing.js";
import { SHAPES, axisPairs, readGroups } from "./map_model.js";

const LIVE_PAUSE_MS = 2000;
const POLL_MS = 1000;
const EARLIER = 5; // generations offered for comparison
const MM = { column: 85, columns: 174 };

showCopies();
/** @type {import("../types").MapData} */
const { slug, samplers, targets, answers, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);
const arrange = (body) => post(`${base}/map/layout`, body);
const drawing = new MapDrawing($("#map"), targets, arrange, "Map of the targets");
let beside = null; // the second drawing
/** @type {import("../types").KeptMap[]} */
let maps = [];
let shown = null;
let fitted = null; // the request whose embedding of all answers is shown
let table = null;
let groups = null;
const known = new Map();

drawing.size = 72;
$("#size").value = drawing.size;
const ALL = ""; // the source "all answers", fitted on request
let source = samplers[0] ?? ALL;
$("#sampler").append(...samplers.map((name) => h("option", { value: name }, name)), h("option", { value: ALL }, "All answers"));
$("#sampler").value = source;
$("#names").append(...targets.map(({ name }) => h("option", { value: name })));

const drawings = () => (beside ? [drawing, beside] : [drawing]);
const listen = (id, event, work) => $(`#${id}`).addEventListener(event, work);
const tell = (...content) => $("#caption").replaceChildren(...content);
const query = (entries) => new URLSearchParams(Object.entries(entries).filter(([, value]) => value)).toString();

listen("sampler", "change", () => {
  source = $("#sampler").value;
  known.clear();
  start();
});
listen("axes", "change", () => drawings().forEach((each) => each.show(each.model, $("#axes").value.split(",").map(Number))));
listen("find", "input", () => {
  const found = drawings().map((each) => each.find($("#find").value))[0];
  $("#select-found").disabled = found.length === 0;
});
listen("find", "change", () => drawing.find($("#find").value, { go: $("#find").value !== "" }));
listen("select-found", "click", () => choose([...drawing.chosen, ...drawing.find($("#find").value)]));
listen("size", "input", () => {
  for (const each of drawings()) {
    each.size = Number($("#size").value);
    each.draw();
  }
});
listen("uncertainty", "change", () => {
  for (const each of drawings()) each.uncertainty = $("#uncertainty").value;
  drawing.fit();
});
listen("labels", "change", () => {
  for (const each of drawings()) {
    each.showsLabels = $("#labels").checked;
    each.draw();
  }
});
listen("lasso", "click", () => {
  const pressed = $("#lasso").getAttribute("aria-pressed") !== "true";
  $("#lasso").setAttribute("aria-pressed", String(pressed));
  drawings().forEach((each) => (each.isLasso = pressed));
  $(".map-stage").classList.toggle("lassoing", pressed);
});
listen("fit", "click", () => drawing.fit());
listen("closer", "click", () => drawing.zoom(true));
listen("farther", "click", () => drawing.zoom(false));
for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-figure-kind]"))) {
  button.addEventListener("click", () => saveFigure(button.dataset.figureKind));
}
listen("save-csv", "click", () => save(`${slug}-map.csv`, csv(), "text/csv"));
listen("generation", "input", () => showGeneration(Number($("#generation").value)));
listen("newest", "click", () => {
  $("#generation").value = maps.length;
  showGeneration(maps.length);
});
listen("refit", "click", () => fitAll());
listen("table", "change", readTable);
listen("column", "change", showGroups);
listen("copy-names", "click", () => copy($("#copy-names"), chosenNames().join("\n")));
listen("clear-names", "click", () => choose([]));
listen("beside", "change", showBeside);

const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function csv() {
  const names = shown.coordinates[0].map((_, axis) => `dim_${axis}`);
  const rows = shown.coordinates.map((row, index) => [index, quoted(targets[index].file ?? targets[index].name), ...row]);
  return [["target", "name", ...names], ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

/** What names the embedding that is shown, in requests. */
const reference = () => (source === ALL || fitted ? { request: fitted } : { sampler: source, line: maps[Number($("#generation").value)]?.line });

async function saveFigure(kind) {
  const d = shown.coordinates[0].length;
  const body = {
    width_mm: MM[$("#width").value],
    axes: d > 2 ? drawing.axes : null,
    groups: groups ? groups.groups.slice(0, shown.coordinates.length) : null,
    group_names: groups ? groups.names : [],
  };
  await attempt(async () => save(`${slug}-map.${kind}`, await download(`${base}/map.${kind}?${query(reference())}`, body)));
}

/**
 * Do something; where it fails, say why and return nothing.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T | undefined>}
 */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    tell(`${error.message} ${error.hint}`);
    return undefined;
  }
}

function describePoint(index) {
  const place = $("#point");
  if (index === null || shown === null) {
    place.replaceChildren(h("p", { class: "quiet" }, "Hover over a target or focus it to see its nearest neighbours."));
    return;
  }
  const target = targets[index];
  place.replaceChildren(
    target.kind === "image" ? h("img", { src: target.media, alt: "" }) : "",
    h("h3", {}, target.name),
    h("p", { class: "quiet" }, `Target ${index}${groups?.groups[index] >= 0 ? `, ${groups.names[groups.groups[index]]}` : ""}. Nearest neighbours:`),
    h("ol", {}, ...(shown.nearest[index] ?? []).map((other) => h("li", {}, targets[other].name))),
  );
}

/** Select targets in every drawing and list their names. */
function choose(indices) {
  const chosen = [...new Set(indices)].sort((a, b) => a - b);
  drawings().forEach((each) => each.select(chosen));
  $("#selection").hidden = chosen.length === 0;
  $("#selected-count").textContent = `${count(chosen.length, "target")} selected`;
  $("#selected").value = chosenNames().join("\n");
}

const chosenNames = () => [...drawing.chosen].map((index) => targets[index].name);

function connect(each, other) {
  each.onpoint = describePoint;
  each.onselect = choose;
  each.onview = (view) => other()?.follow(view);
  each.onfail = (error) => {
    if (!(error instanceof Failure)) throw error;
    tell(`${error.message} ${error.hint}`);
  };
}

/** Read a table of groups: it stays in the browser; only a file that is saved with groups names them to the server. */
async function readTable() {
  const [file] = $("#table").files;
  if (!file) return;
  table = readGroups(await file.text(), targets);
  const { columns, matched } = table;
  $("#column").replaceChildren(h("option", { value: "" }, "no groups"), ...columns.map(({ name, column }) => h("option", { value: column }, name)));
  $("#column-choice").hidden = columns.length === 0;
  $("#table-outcome").textContent = columns.length
    ? `${count(matched, "row")} of ${file.name} name targets.`
    : `No column of ${file.name} names targets. It needs a first row with column names, one column with file names, names or numbers of targets, and at least one other column.`;
  if (columns.length) $("#column").value = columns[0].column;
  showGroups();
}

function showGroups() {
  groups = $("#column").value === "" || !table ? null : table.of(Number($("#column").value));
  drawings().forEach((each) => each.group(groups));
  const sizes = groups?.names.map((_, group) => groups.groups.filter((of) => of === group).length) ?? [];
  $("#legend").hidden = groups === null;
  $("#legend").replaceChildren(
    ...(groups?.names ?? []).map((name, group) => {
      const sample = svg("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" }, svg("path", { d: SHAPES[group], "data-group": group, class: "dot" }));
      const members = () => choose(groups.groups.flatMap((of, index) => (of === group ? [index] : [])));
      return h("li", {}, h("button", { type: "button", class: "plain", title: "Select this group", onclick: members }, sample, `${name} (${sizes[group]})`));
    }),
  );
}

/** Show a stored generation, or the latest one at the last place of the slider. */
async function showGeneration(place) {
  const line = maps[place]?.line ?? "";
  const model = known.get(line) ?? (await attempt(() => get(`${base}/model?${query({ sampler: source, line })}`)));
  if (!model || Number($("#generation").value) !== place) return; // it failed, or the slider has moved since
  if (line) known.set(line, model);
  show(model);
  describe(model.numbers, line === "");
}

function show(model) {
  shown = model;
  const axes = axisPairs(model.coordinates[0].length);
  if ($("#axes").options.length !== axes.length) {
    $("#axes").replaceChildren(...axes.map((pair) => h("option", { value: pair }, `${pair[0] + 1} and ${pair[1] + 1}`)));
    $("#axes-choice").hidden = axes.length < 2;
  }
  $("#uncertainty").disabled = model.spread === null;
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-figure-kind], #save-csv"))) button.disabled = false;
  drawing.show(model);
  if (beside) showBeside();
}

const ONLY_DISTANCES = ". Only distances are meaningful: both axes have the same scale, and the rotation is arbitrary.";

/** Return the held-out accuracy of an embedding in words: the one that the overview shows. */
/** @type {(numbers: import("../types").MapNumbers) => string} */
const accuracyOf = ({ accuracy, accuracy_low: low, accuracy_high: high }) =>
  accuracy === undefined ? "" : `, held-out accuracy ${percent(accuracy, 1)} (95 % interval ${percent(low, 1)} to ${percent(high, 1)})`;

function describe(numbers, newest) {
  const label = `Generation ${number(numbers.generation)}${newest ? " (latest)" : ""}`;
  $("#generation-label").textContent = label;
  $("#generation").setAttribute("aria-valuetext", label);
  tell(
    `${count(numbers.reported_of ?? numbers.absorbed, "answer")}${accuracyOf(numbers)}`,
    numbers.published_ms ? ", fitted " : "",
    numbers.published_ms ? time(numbers.published_ms) : "",
    ...leftOutOf(numbers),
    numbers.feature_weight === undefined ? "" : `, features explain ${percent(numbers.feature_weight)}`,
    ONLY_DISTANCES,
  );
}

/** Return how many people the model leaves out, with a link to them; nothing where it leaves out nobody. */
/** @type {(numbers: import("../types").MapNumbers) => (string | HTMLElement)[]} */
const leftOutOf = ({ left_out: people }) =>
  people ? [", without ", h("a", { href: at(`/console/experiments/${slug}/participants`) }, count(people, "participant")), " who answered by chance"] : [];

async function start() {
  $("#refit").hidden = true;
  fitted = null;
  if (source === ALL) return showAll();
  const history = await attempt(() => get(`${base}/history?${query({ sampler: source })}`));
  if (!history) return undefined;
  const atNewest = Number($("#generation").value) >= maps.length;
  maps = history.maps;
  $("#generation").max = maps.length;
  $("#generations").hidden = maps.length === 0;
  offerBeside();
  try {
    if (atNewest || shown === null) {
      $("#generation").value = maps.length;
      const model = await get(`${base}/model?${query({ sampler: source })}`);
      show(model);
      describe(model.numbers, true);
    }
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    // The sampler has not fitted anything yet, and in a paused experiment it never will: fit the answers that are there.
    return showAll();
  }
  return undefined;
}

const isFitOfAll = ({ kind, arguments: { exclude = [] } }) => kind === "fit" && exclude.length === 0;

/** Show the embedding of all answers: the newest one that was fitted on request, or a new one. */
async function showAll() {
  $("#generations").hidden = true;
  maps = [];
  offerBeside();
  const asked = ((await attempt(() => get(`${base}/requests`))) ?? []).filter(isFitOfAll);
  const found = asked.find(({ state }) => ["done", "waiting", "running"].includes(state));
  if (found) return follow(found.request);
  if (answers === 0) {
    $(".map-stage").hidden = true;
    return tell("There are no answers yet. The map appears with the first fit after answers arrive; reload this page then.");
  }
  if (!mayEdit) return tell("No embedding has been fitted yet. Who may change this experiment can open this page to fit one.");
  return fitAll();
}

async function fitAll() {
  $("#refit").hidden = true;
  const asked = await attempt(() => post(`${base}/requests`, { kind: "fit", arguments: { exclude: [] } }));
  if (asked) await follow(asked.request);
}

/** Wait for a request and show its embedding. */
async function follow(request) {
  for (;;) {
    const status = await attempt(() => get(`${base}/requests/${request}`));
    if (!status) return;
    if (status.state === "failed" || status.state === "cancelled") {
      tell(status.error || "The fit was cancelled.");
      $("#refit").hidden = !mayEdit;
      return;
    }
    if (status.state === "done") {
      fitted = request;
      const model = await attempt(() => get(`${base}/model?${query({ request })}`));
      if (!model) return;
      show(model);
      const { absorbed, published_ms } = model.numbers;
      const missing = source === ALL ? "" : `${source} has not fitted an embedding yet. `;
      tell(`${missing}Fitted to ${count(absorbed, "answer")} on request, `, time(published_ms), accuracyOf(model.numbers), ONLY_DISTANCES);
      $("#refit").hidden = !mayEdit;
      return;
    }
    tell(`Fitting all answers: ${percent(status.progress)}${status.note ? `, ${status.note}` : ""}. ${status.warning}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Offer other embeddings to be shown beside this one: samplers, all answers, and earlier generations. */
function offerBeside() {
  const chosen = $("#beside").value;
  const step = Math.max(1, Math.ceil(maps.length / EARLIER));
  const earlier = maps.filter((_, place) => place % step === 0);
  const options = [
    ["", "nothing"],
    ...samplers.map((name) => [query({ sampler: name }), name]),
    ...earlier.map(({ line, generation }) => [query({ sampler: source, line }), `${source}, generation ${number(generation)}`]),
  ];
  $("#beside").replaceChildren(...options.map(([value, name]) => h("option", { value }, name)));
  $("#beside").value = options.some(([value]) => value === chosen) ? chosen : "";
  // A sampler's newest generation is no comparison with itself.
  $("#beside-choice").hidden = options.length < (source === ALL ? 2 : 3);
}

async function showBeside() {
  const wanted = $("#beside").value;
  $("#second").hidden = wanted === "";
  $(".map-stage").classList.toggle("double", wanted !== "");
  if (wanted === "") return;
  if (!beside) {
    beside = new MapDrawing($("#map-beside"), targets, arrange, "Map to compare with");
    connect(beside, () => drawing);
    for (const property of ["size", "uncertainty", "showsLabels", "isLasso"]) beside[property] = drawing[property];
    beside.group(groups);
    beside.select(drawing.chosen);
  }
  const onto = Object.fromEntries(Object.entries(reference()).map(([name, value]) => [`onto_${name}`, value]));
  const model = await attempt(() => get(`${base}/model?${wanted}&${query(onto)}`));
  if (!model) return;
  beside.show(model, drawing.axes);
  drawing.fit();
  $("#beside-caption").textContent = `${$("#beside").selectedOptions[0].textContent}: ${count(model.numbers.reported_of ?? model.numbers.absorbed, "answer")}${accuracyOf(model.numbers)}. Moved, turned, mirrored and scaled onto the map beside it (Procrustes).`;
}

connect(drawing, () => beside);
describePoint(null);
await start();
if (samplers.length) {
  let generation = null;
  let waiting = null;
  const stream = new EventSource(at(`${base}/stream`));
  stream.addEventListener("overview", (event) => {
    /** @type {import("../types").OverviewReply} */
    const { samplers: views, state } = JSON.parse(event.data);
    $("#state").textContent = state;
    $("#state").dataset.state = state;
    const current = views.find(({ name }) => name === source)?.generation ?? null;
    if (current === generation || waiting || source === ALL) return;
    const isFirst = generation === null && shown !== null && !fitted;
    generation = current;
    if (isFirst) return;
    waiting = setTimeout(() => {
      waiting = null;
      start();
    }, LIVE_PAUSE_MS);
  });
  addEventListener("pagehide", () => stream.close());
}
