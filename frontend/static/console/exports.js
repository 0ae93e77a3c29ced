// Everything that can be taken home.

import { $, data, h, showCopies } from "./dom.js";

showCopies();
const { slug, samplers } = data();
const base = `/api/experiments/${slug}`;
const TABLE = ["csv", "jsonl", "parquet"];

const FILES = [
  ["Answers", [
    ["responses", "Every answer, one a row: the columns of the first Salmon first, then everything else that is known of it.", TABLE],
    ["participants", "Everybody who came: times, status, conduct, quality, and whether they are kept.", TABLE],
    ["quality", "The figures of quality and the reasons of every flag.", TABLE],
    ["events", "What happened on the pages: skips, lost focus, files that did not load.", TABLE],
    ["platform_ids", "The only file beside responses with the ids by which a platform knows people.", TABLE],
  ]],
  ["Embeddings", [
    ["embeddings", "Where every target lies now.", TABLE],
    ["embedding_history", "Where they lay in every generation that was kept.", TABLE],
    ["models", "Every generation with its loss, accuracy and durations.", TABLE],
    ["targets", "Index, name, kind, SHA-256 and size of every target.", TABLE],
  ]],
  ["For other programs", [
    ["salmon_responses", "Answers in the 26 columns of the first Salmon, and no others.", ["csv", "json"]],
    ["salmon_embeddings", "Embeddings in the columns of the first Salmon.", ["csv"]],
    ["triplettools_triplets", "Answers as tripletTools (R) reads them.", TABLE],
    ["triplettools_embeddings", "Embeddings as tripletTools reads them.", TABLE],
    ["cblearn", "Triplets for cblearn (Python).", ["npz", ...TABLE]],
    ["psiz", "Trials for psiz (Python).", ["npz", ...TABLE]],
  ]],
  ["To run it again", [
    ["config", "The experiment's file, with every default.", ["yaml"]],
    ["provenance", "Versions, seeds, hashes and every change made during the run.", ["json"]],
    ["README", "What every column means.", ["md"]],
    ["analysis", "A notebook and an R script that run on the bundle.", ["ipynb", "R"]],
  ]],
];

$("#sampler").append(h("option", { value: "" }, "all samplers"), ...samplers.map((name) => h("option", { value: name }, name)));
$("#sampler-choice").hidden = samplers.length < 2;

const links = [];
$("#files").append(
  ...FILES.flatMap(([title, files]) => [
    h("h3", {}, title),
    h(
      "dl",
      { class: "files" },
      ...files.flatMap(([name, what, extensions]) => [
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

/** The links say what was chosen, so that they can be copied into a script. */
function address() {
  const chosen = new URLSearchParams();
  if ($("#excluded").value !== "mark") chosen.set("excluded", $("#excluded").value);
  if ($("#sampler").value) chosen.set("sampler", $("#sampler").value);
  const query = chosen.size ? `?${chosen}` : "";
  for (const [element, name, extension] of links) element.href = `${base}/exports/${name}.${extension}${query}`;
}
for (const id of ["excluded", "sampler"]) $(`#${id}`).addEventListener("change", address);
address();

$("#bundle").addEventListener("submit", (event) => {
  event.preventDefault();
  const personal = new FormData(event.target).has("personal") ? "?personal=no" : "";
  h("a", { href: `${base}/bundle${personal}`, download: "" }).click();
});
