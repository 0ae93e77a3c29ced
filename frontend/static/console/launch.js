// The page that creates an experiment.

import { Failure, at, handleSubmit, post } from "./api.js";
import { $, data, h } from "./dom.js";
import { Draft } from "./draft.js";

const TEMPLATE = `# Only this line is required: the things to compare.
targets: [red, green, blue, yellow, orange, purple]
title: Colour words
html:
  instructions: Which of the two is more like the <b>upper</b> one?
  max_queries: 40
`;

/** @type {import("../types").LaunchData} */
const { examples } = data();
const draft = new Draft({ spec: TEMPLATE, label: "Experiment file (YAML)" });
let example = "";

const choice = $("#example");
choice.append(...examples.map(({ name }) => h("option", { value: name }, name)));
choice.addEventListener("change", async () => {
  const chosen = examples.find(({ name }) => name === choice.value);
  if (!chosen) return;
  if (draft.hasOwnFiles && !confirm("The example comes with its own targets. Put them in place of your files?")) return;
  example = chosen.name;
  draft.spec = chosen.spec; // one step: Undo brings back what was there
  if (chosen.zip) await draft.upload([await fetchArchive(chosen.name)], { own: false });
  else await draft.removeFiles();
});

async function fetchArchive(name) {
  const reply = await fetch(at(`/api/examples/${name}/targets.zip`));
  return new File([await reply.blob()], "targets.zip", { type: "application/zip" });
}

handleSubmit($("#launch"), async (form, button) => {
  const body = new FormData();
  body.set("spec", new Blob([draft.spec]), example ? `${example}.yaml` : "experiment.yaml");
  body.set("from_draft", "true");
  body.set("name", form.get("name"));
  body.set("state", button?.value ?? "draft");
  try {
    const made = await post("/api/experiments", body);
    draft.finish();
    location.assign(at(`/console/experiments/${made.slug}/${made.state === "draft" ? "settings" : ""}`));
  } catch (error) {
    if (error instanceof Failure && error.problems.length) await draft.check();
    throw error;
  }
});
