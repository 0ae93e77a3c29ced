// The privacy page: find, export and erase one person, and follow erasures.

import { Failure, at, get, handleSubmit, post } from "./api.js";
import { $, count, data, h, number, time } from "./dom.js";

const AGAIN_MS = 700;
/** @type {import("../types").PrivacyData} */
let { erasures } = data();
/** @type {import("../types").PersonReply} */
let found = null;

if ($("#find")) {
  handleSubmit($("#find"), async (form) => {
    found = await get(`/api/people?id=${encodeURIComponent(form.get("id").trim())}`);
    showPerson();
    return found.experiments.length + found.bundles.length ? "" : `Nothing is stored about ${found.id}. Capital and small letters are different.`;
  });
  const asked = new URLSearchParams(location.search).get("id");
  if (asked) {
    $("#find [name=id]").value = asked;
    $("#find").requestSubmit();
  }
}

handleSubmit($("#erase"), async (form) => {
  if (form.get("confirm").trim() !== found.id) throw new Failure({ message: `Type ${found.id} to confirm.`, hint: "Nothing was erased." }, 0);
  const begun = await post("/api/people/erasures", { id: found.id, answers: form.get("answers") });
  erasures = [begun, ...erasures];
  $("#erase").reset();
  $("#found").hidden = true;
  if ($("#find")) $("#find").reset();
  history.replaceState(null, "", location.pathname); // the address held the id
  showErasures();
  $("#erasures").scrollIntoView({ block: "nearest" });
  follow();
  return "";
});

function showPerson() {
  const kinds = (stored) => Object.entries(stored).filter(([, value]) => value).map(([name, value]) => `${number(value)} ${name.replaceAll("_", " ")}`);
  const rows = found.experiments.map((each) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, each.slug),
      h("td", {}, h("code", {}, each.participant)),
      h("td", {}, each.puid === each.participant ? "–" : h("code", {}, each.puid)),
      h("td", {}, each.status.replaceAll("_", " ")),
      h("td", {}, each.first_ms ? time(each.first_ms) : "–"),
      h("td", {}, kinds(each.stored).join(", ") || "nothing else"),
    ),
  );
  const heads = ["Experiment", "Participant", "Platform id", "Status", "Arrived", "Stored"];
  $("#person").replaceChildren(
    rows.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...rows))) : "",
    found.bundles.length ? h("p", {}, `Also in ${count(found.bundles.length, "kept bundle")}: `, ...found.bundles.map(({ bundle }) => h("code", {}, bundle, " "))) : "",
  );
  $("#export").href = at(`/api/people/export?id=${encodeURIComponent(found.id)}`);
  $("#wanted").textContent = found.id;
  $("#found").hidden = found.experiments.length + found.bundles.length === 0;
}

function showErasures() {
  const place = $("#erasures");
  if (!erasures.length) {
    place.replaceChildren(h("p", {}, "Nothing was erased so far."));
    return;
  }
  const heads = ["Asked", "By", "Experiments", "Answers", "State"];
  place.replaceChildren(
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...erasures.map(row)))),
  );
}

/** @param {import("../types").ErasureRow} erasure */
function row(erasure) {
  const what = erasure.kind === "experiment" ? "whole experiment" : `${number(erasure.removed)} ${erasure.answers === "keep" ? "anonymous" : "removed"}`;
  return h(
    "tr",
    {},
    h("td", {}, time(erasure.asked_ms)),
    h("td", {}, erasure.by),
    h("td", {}, erasure.slugs.join(", ")),
    h("td", {}, what),
    h("td", {}, ...state(erasure)),
  );
}

/** @param {import("../types").ErasureRow} erasure */
function state(erasure) {
  if (erasure.state === "done") {
    const bundles = erasure.bundles.length ? ` ${count(erasure.bundles.length, "kept bundle")} written anew.` : "";
    return [`Done: no trace was found.${bundles} ${erasure.unreached.join(" ")}`.trim()];
  }
  if (erasure.state === "failed") return [h("span", { class: "failed" }, erasure.error)];
  return [h("progress", { max: 1, value: erasure.progress, "aria-label": "Erasure" }), ` ${erasure.step}`];
}

async function follow() {
  while (erasures.some(({ state: now }) => now === "waiting" || now === "running")) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    try {
      erasures = await get("/api/people/erasures");
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      continue; // the server is away for a moment; the erasure goes on
    }
    showErasures();
  }
}

showErasures();
follow();
