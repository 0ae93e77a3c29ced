// The export page: links to every file, and the bundle.

import { at } from "./api.js";
import { $, data, h, showCopies } from "./dom.js";

showCopies();
/** @type {import("../types").ExportsData} */
const { slug, samplers, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);
const TABLE = ["csv", "jsonl", "parquet"];

/** @type {[string, [string, string, string[]][]][]} */
const FILES = [
  ["Answers", [
    ["responses", "One answer per row: the columns of Salmon 1, then everything else that was recorded.", TABLE],
    ["participants", "Everyone who opened the link: times, status, page events, quality, and whether they are kept.", TABLE],
    ["quality", "Quality figures, and the reason for every flag.", TABLE],
    ["events", "Page events: skips, lost focus, files that failed to load.", TABLE],
    ["platform_ids", "Participants' IDs on the recruitment platform. The column puid of responses, salmon_responses and triplettools_triplets contains them, too.", TABLE],
  ]],
  ["Embeddings", [
    ["embeddings", "The current position of every target.", TABLE],
    ["embedding_history", "Their positions in every stored generation.", TABLE],
    ["models", "Loss, accuracy and durations of every generation.", TABLE],
    ["targets", "Index, name, kind, SHA-256 and size of every target.", TABLE],
  ]],
  ["For other programs", [
    ["salmon_responses", "Answers with only the 26 columns of Salmon 1.", ["csv", "json"]],
    ["salmon_embeddings", "Embeddings with the columns of Salmon 1.", ["csv"]],
    ["triplettools_triplets", "Answers for tripletTools (R).", TABLE],
    ["triplettools_embeddings", "Embeddings for tripletTools (R).", TABLE],
    ["cblearn", "Triplets for cblearn (Python).", ["npz", ...TABLE]],
    ["psiz", "Trials for psiz (Python).", ["npz", ...TABLE]],
  ]],
  ["Reproducibility", [
    ["config", "The experiment file with all defaults filled in.", ["yaml"]],
    ["provenance", "Versions, seeds, hashes and every change made during the run.", ["json"]],
    ["README", "What every column means.", ["md"]],
    ["report", "Design, participants, accuracy, choice of the dimension, map and a paragraph on methods, in one file. It takes up to a minute.", ["html"]],
    ["analysis", "A notebook and an R script that run on the files of the bundle.", ["ipynb", "R"]],
  ]],
];

$("#sampler").append(h("option", { value: "" }, "all samplers"), ...samplers.map((name) => h("option", { value: name }, name)));
$("#sampler-choice").hidden = samplers.length < 2;

/** @type {[HTMLAnchorElement, string, string][]} */
const links = [];
$("#files").append(
  ...FILES.flatMap(([title, files]) => [
    h("h3", {}, title),
    h(
      "dl",
      { class: "files" },
      ...files.filter(([name]) => mayEdit || name !== "platform_ids").flatMap(([name, what, extensions]) => [
        h("dt", {}, name, " ", ...extensions.map((extension) => link(name, extension))),
        h("dd", {}, what),
      ]),
    ),
  ]),
);

function link(name, extension) {
  const element = h("a", { class: "download", "aria-label": `${name}.${extension}`, download: "" }, extension);
  links.push([element, name, extension]);
  return element;
}

/** Put the chosen options into the links, so that they can be copied into a script. */
function updateLinks() {
  const chosen = new URLSearchParams();
  if ($("#excluded").value !== "mark") chosen.set("excluded", $("#excluded").value);
  if ($("#sampler").value) chosen.set("sampler", $("#sampler").value);
  const query = chosen.size ? `?${chosen}` : "";
  for (const [element, name, extension] of links) element.href = at(`${base}/exports/${name}.${extension}${query}`);
}
for (const id of ["excluded", "sampler"]) $(`#${id}`).addEventListener("change", updateLinks);
updateLinks();

$("#bundle [name=personal]").closest("label").hidden = !mayEdit;
$("#bundle").addEventListener("submit", (event) => {
  event.preventDefault();
  const personal = new FormData(event.target).has("personal") ? "?personal=no" : "";
  h("a", { href: at(`${base}/bundle${personal}`), download: "" }).click();
});
