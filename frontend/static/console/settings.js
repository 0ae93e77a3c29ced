// The file of an experiment, its state, who shares it, and its end.

import { Failure, post, put, remove, submitting } from "./api.js";
import { $, data, h, showCopies, time } from "./dom.js";
import { Draft } from "./draft.js";
import { Table } from "./table.js";

showCopies();
const page = data();
const base = `/api/experiments/${page.slug}`;

const SENTENCES = {
  draft: "It is a draft: nobody but you can see it. Try it out, then open it.",
  open: "It is open: everybody with the link can take part.",
  paused: "It is paused: participants are told to come back later. Nothing is lost.",
  closed: "It is closed: participants are told that it has ended.",
};
const BUTTONS = {
  draft: [["open", "Open"]],
  open: [["paused", "Pause"], ["closed", "Close"]],
  paused: [["open", "Open again"], ["closed", "Close"]],
  closed: [["open", "Open again"]],
};

function showState(state) {
  page.state = state;
  $("#state").textContent = state;
  $("#state").dataset.state = state;
  $("#state-sentence").textContent = SENTENCES[state];
  $("#state-buttons").replaceChildren(
    ...BUTTONS[state].map(([to, label]) => h("button", { type: "button", onclick: () => setState(to) }, label)),
  );
}

async function setState(to) {
  const outcome = $("#run-title").parentElement.querySelector(".outcome");
  try {
    const { state } = await put(`${base}/state`, { state: to });
    showState(state);
    outcome.textContent = "";
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    outcome.textContent = `${error.message} ${error.hint}`;
  }
}

$("#tryout").addEventListener("click", async () => {
  const opened = window.open("about:blank", "_blank");
  const { link } = await post(`${base}/tryout`);
  if (opened) opened.location = link;
  else location.assign(link);
});
showState(page.state);

const draft = new Draft({ spec: page.spec, slug: page.slug, label: "The experiment's file (YAML)" });
$("#revision-sentence").textContent =
  `Revision ${page.revision}. ` +
  (page.answers > 0
    ? "Answers are there: targets keep their places, and new ones go to the end. Everything else may change; participants meet it with their next query."
    : "Nobody has answered yet: everything may change.");
submitting($("#revise"), async () => {
  const body = new FormData();
  body.set("spec", new Blob([draft.spec]), `${page.slug}.yaml`);
  body.set("revision", page.revision);
  if (draft.archive) body.set("targets", draft.archive);
  try {
    const made = await put(`${base}/spec`, body);
    page.revision = made.revision;
    draft.setArchive(null);
    $("#revision-sentence").textContent = `Revision ${made.revision} is in use now.`;
    return ["It is saved.", ...made.warnings].join(" ");
  } catch (error) {
    if (error instanceof Failure && error.problems.length) draft.showProblems(error.problems);
    throw error;
  }
});

if (page.everybodys) {
  $("#share").replaceChildren(h("p", {}, "It was launched on the server itself: everybody with an account here shares it."));
} else {
  showSharing();
}

function showSharing() {
  const shared = new Set(page.shared);
  const box = (name) =>
    h("label", { class: "inline check" }, h("input", { type: "checkbox", name: "names", value: name, checked: shared.has(name) }), name);
  const nobody = h("p", { class: "quiet" }, "Nobody else has an account here yet. The owner of the server can invite them.");
  $("#accounts").append(...(page.accounts.length ? page.accounts.map(box) : [nobody]));
  submitting($("#share"), async (form) => {
    await put(`${base}/shared`, { names: form.getAll("names") });
    return "It is saved.";
  });
}

submitting($("#copy"), async (form) => {
  const made = await post(`${base}/copy`, { name: form.get("name") });
  location.assign(`/console/experiments/${made.slug}/settings`);
});

const changes = new Table(
  [
    { name: "at_ms", label: "When", value: (row) => row.at_ms, show: (row) => time(row.at_ms) },
    { name: "by", label: "Who", value: (row) => row.by },
    { name: "what", label: "What", value: (row) => row.what },
    { name: "detail", label: "Detail", value: (row) => row.detail },
  ],
  { name: `${page.slug}-changes`, label: "Changes" },
);
$("#changes").append(changes.element);
changes.show(page.changes);

if (page.may_delete) {
  submitting($("#delete"), async (form) => {
    await remove(base, { name: form.get("name") });
    location.assign("/console/");
  });
} else {
  $("#delete").replaceChildren(h("p", {}, "Only its owner may delete it."));
}
