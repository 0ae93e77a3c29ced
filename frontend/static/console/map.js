// The map page: chooses an embedding and how it is drawn.

import { Failure, get } from "./api.js";
import { $, count, data, h, number, percent, save, showCopies, time } from "./dom.js";
import { MapDrawing } from "./map_drawing.js";
import { axisPairs } from "./map_model.js";

const LIVE_PAUSE_MS = 2000;

showCopies();
const { slug, samplers, targets } = data();
const base = `/api/experiments/${slug}`;
const drawing = new MapDrawing($("#map"), targets);
drawing.size = targets.length > 200 ? 24 : targets.length > 60 ? 36 : 56;
$("#size").value = drawing.size;
let sampler = samplers[0] ?? "";
let maps = [];
let shown = null;
const known = new Map();

$("#sampler").append(...samplers.map((name) => h("option", { value: name }, name)));
$("#sampler-choice").hidden = samplers.length < 2;
$("#names").append(...targets.map(({ name }) => h("option", { value: name })));

const listen = (id, event, work) => $(`#${id}`).addEventListener(event, work);
listen("sampler", "change", () => {
  sampler = $("#sampler").value;
  known.clear();
  start();
});
listen("axes", "change", () => drawing.show(shown, $("#axes").value.split(",").map(Number)));
listen("find", "input", () => drawing.find($("#find").value));
listen("find", "change", () => drawing.find($("#find").value, { go: $("#find").value !== "" }));
listen("size", "input", () => {
  drawing.size = Number($("#size").value);
  drawing.draw();
});
for (const [id, property] of [["ellipses", "showsEllipses"], ["labels", "showsLabels"]]) {
  listen(id, "change", () => {
    drawing[property] = $(`#${id}`).checked;
    drawing.draw();
  });
}
listen("fit", "click", () => drawing.fit());
listen("closer", "click", () => drawing.zoom(true));
listen("farther", "click", () => drawing.zoom(false));
listen("save-svg", "click", async () => save(`${slug}-map.svg`, await drawing.file(), "image/svg+xml"));
listen("save-png", "click", async () => save(`${slug}-map.png`, await drawing.png()));
listen("save-csv", "click", () => save(`${slug}-map.csv`, csv(), "text/csv"));
listen("generation", "input", () => showGeneration(Number($("#generation").value)));
listen("newest", "click", () => {
  $("#generation").value = maps.length;
  showGeneration(maps.length);
});

function csv() {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const names = shown.coordinates[0].map((_, axis) => `dim_${axis}`);
  const rows = shown.coordinates.map((row, index) => [index, quoted(targets[index].name), ...row]);
  return [["target", "name", ...names], ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

drawing.onpoint = (index) => {
  const place = $("#about");
  if (index === null || shown === null) {
    place.replaceChildren(h("p", { class: "quiet" }, "Hover over a target or focus it to see its nearest neighbours."));
    return;
  }
  const target = targets[index];
  place.replaceChildren(
    target.kind === "image" ? h("img", { src: target.media, alt: "" }) : "",
    h("h3", {}, target.name),
    h("p", { class: "quiet" }, `Target ${index}. Nearest neighbours:`),
    h("ol", {}, ...shown.nearest[index].map((other) => h("li", {}, targets[other].name))),
  );
};

/** Show a stored generation, or the latest one at the last place of the slider. */
async function showGeneration(place) {
  const line = maps[place]?.line ?? "";
  let model = known.get(line);
  if (!model) {
    try {
      model = await get(`${base}/model?sampler=${encodeURIComponent(sampler)}&line=${line}`);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      $("#caption").textContent = `${error.message} ${error.hint}`;
      return;
    }
    if (line) known.set(line, model);
  }
  if (Number($("#generation").value) !== place) return; // the slider has moved since
  shown = model;
  const axes = axisPairs(model.coordinates[0].length);
  if ($("#axes").options.length !== axes.length) {
    $("#axes").replaceChildren(...axes.map((pair) => h("option", { value: pair }, `${pair[0] + 1} and ${pair[1] + 1}`)));
    $("#axes-choice").hidden = axes.length < 2;
  }
  $("#ellipses").disabled = model.spread === null;
  drawing.show(model);
  describe(model.numbers, line === "");
}

function describe(numbers, newest) {
  const accuracy = numbers.held_total > 0 ? `, accuracy ${percent(numbers.held_right / numbers.held_total, 1)} on ${count(numbers.held_total, "random answer")}` : "";
  const label = `Generation ${number(numbers.generation)}${newest ? " (latest)" : ""}`;
  $("#generation-label").textContent = label;
  $("#generation").setAttribute("aria-valuetext", label);
  $("#caption").replaceChildren(
    `${count(numbers.reported_of ?? numbers.absorbed, "answer")}${accuracy}`,
    numbers.published_ms ? ", fitted " : "",
    numbers.published_ms ? time(numbers.published_ms) : "",
    ". Only distances are meaningful: both axes have the same scale, and the rotation is arbitrary.",
  );
}

async function start() {
  const history = await get(`${base}/history?sampler=${encodeURIComponent(sampler)}`);
  const atNewest = Number($("#generation").value) >= maps.length;
  maps = history.maps;
  $("#generation").max = maps.length;
  $("#generations").hidden = maps.length === 0;
  if (atNewest || shown === null) {
    $("#generation").value = maps.length;
    await showGeneration(maps.length);
  }
}

drawing.onpoint(null);
if (sampler) {
  let generation = null;
  let waiting = null;
  await start();
  const source = new EventSource(`${base}/stream`);
  source.addEventListener("overview", (event) => {
    const { samplers: views, state } = JSON.parse(event.data);
    $("#state").textContent = state;
    $("#state").dataset.state = state;
    const current = views.find(({ name }) => name === sampler)?.generation ?? null;
    if (current === generation || waiting) return;
    generation = current;
    waiting = setTimeout(() => {
      waiting = null;
      start();
    }, LIVE_PAUSE_MS);
  });
  addEventListener("pagehide", () => source.close());
} else {
  $("#caption").textContent = "No sampler of this experiment fits an embedding while it runs. Export the answers and run salmon fit, or add Adaptive to the samplers.";
  $("#generations").hidden = true;
}
