// The settings page: state, experiment file, sharing, copy, history and deletion.

import { Failure, at, handleSubmit, post, put, remove } from "./api.js";
import { $, data, h, showCopies, time } from "./dom.js";
import { Draft } from "./draft.js";
import { Table } from "./table.js";

showCopies();
/** @type {import("../types").SettingsData} */
const page = data();
const base = /** @type {const} */ (`/api/experiments/${page.slug}`);

const SENTENCES = {
  draft: "Draft: participants cannot see it yet. Try it out, then open it.",
  open: "Open: everybody with the link can take part.",
  paused: "Paused: participants are asked to come back later. No answers are lost.",
  closed: "Closed: participants are told that the experiment has ended.",
};
const BUTTONS = {
  draft: [["open", "Open"]],
  open: [["paused", "Pause"], ["closed", "Close"]],
  paused: [["open", "Resume"], ["closed", "Close"]],
  closed: [["open", "Reopen"]],
};

function showState(state) {
  page.state = state;
  $("#state").textContent = state;
  $("#state").dataset.state = state;
  $("#state-sentence").textContent = SENTENCES[state];
  if (!page.may_edit || document.querySelector("#rehearsal")) return;
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

$("#rehearse")?.addEventListener("click", async ({ target }) => {
  const outcome = $("#run-title").parentElement.querySelector(".outcome");
  target.disabled = true;
  try {
    const { slug } = await post(`${base}/rehearsal`, { people: Number($("#rehearsing-people").value) });
    location.assign(at(`/console/experiments/${slug}/`));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    outcome.textContent = `${error.message} ${error.hint}`;
    target.disabled = false;
  }
});
if ($("#rehearsal-link") && page.rehearsal) {
  $("#rehearsal-link").replaceChildren("There is a rehearsal: ", h("a", { href: at(`/console/experiments/${page.rehearsal}/`) }, page.rehearsal), ".");
  $("#rehearse").disabled = true;
}

const draft = new Draft({ spec: page.spec, slug: page.slug, label: "Experiment file (YAML)", keep: page.may_edit });
$("#revision-sentence").textContent =
  `Revision ${page.revision}. ` +
  (page.answers > 0
    ? "There are answers already, so targets keep their order and new ones are added at the end. You can change everything else; participants get the change with their next query."
    : "There are no answers yet, so you can change everything.");
if (!page.may_edit) $("#revise").replaceChildren(h("p", {}, "You may look at this file; only those whom the owner lets change the experiment can save it."));
else handleSubmit($("#revise"), async () => {
  const body = new FormData();
  body.set("spec", new Blob([draft.spec]), `${page.slug}.yaml`);
  body.set("revision", String(page.revision));
  body.set("from_draft", "true");
  try {
    const made = await put(`${base}/spec`, body);
    page.revision = made.revision;
    draft.revised();
    $("#revision-sentence").textContent = `Revision ${made.revision} is now in use.`;
    return ["Saved.", ...made.warnings].join(" ");
  } catch (error) {
    if (error instanceof Failure && error.problems.length) await draft.check();
    throw error;
  }
});

if (page.access === "own") showSharing();
else $("#share").replaceChildren(h("p", {}, "Only the owner can share this experiment."));

function showSharing() {
  if (page.everybodys) $("#share").prepend(h("p", {}, "This experiment was launched on the server itself, so every experimenter can see and change it. Viewers see it when you share it with them."));
  const listed = page.accounts.filter(({ role }) => !page.everybodys || role === "viewer");
  const choice = ({ name, role, may }) => {
    const select = h(
      "select",
      { name },
      h("option", { value: "" }, "nothing"),
      h("option", { value: "view" }, "look"),
      role === "viewer" ? null : h("option", { value: "edit" }, "change"),
    );
    select.value = role === "viewer" && may ? "view" : may;
    return h("label", { class: "inline" }, `${name} may `, select);
  };
  const nobody = h("p", { class: "quiet" }, "There are no other accounts to share it with yet. The owner of the server can invite people.");
  $("#accounts").append(...(listed.length ? listed.map(choice) : [nobody]));
  handleSubmit($("#share"), async (form) => {
    await put(`${base}/shared`, { accounts: Object.fromEntries([...form].filter(([, may]) => may)) });
    return "Saved.";
  });
}

if ($("#copy")) {
  handleSubmit($("#copy"), async (form) => {
    const made = await post(`${base}/copy`, { name: form.get("name") });
    location.assign(at(`/console/experiments/${made.slug}/settings`));
  });
}

/** @type {Table<import("../types").Change>} */
const changes = new Table(
  [
    { name: "at_ms", label: "When", value: (row) => row.at_ms, show: (row) => time(row.at_ms) },
    { name: "by", label: "Who", value: (row) => row.by },
    { name: "what", label: "What", value: (row) => row.what },
    { name: "detail", label: "Details", value: (row) => row.detail },
  ],
  { name: `${page.slug}-changes`, label: "History" },
);
$("#changes").append(changes.element);
changes.show(page.changes);

if (page.access === "own") {
  handleSubmit($("#delete"), async (form) => {
    await remove(base, { name: form.get("name") });
    location.assign(at("/console/"));
  });
} else {
  $("#delete").replaceChildren(h("p", {}, "Only the owner can delete this experiment."));
}
