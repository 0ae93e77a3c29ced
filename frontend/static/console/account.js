// The account page: password, second factor, sessions and API tokens.

import { Failure, errorParagraphs, get, handleSubmit, post, put, remove } from "./api.js";
import { $, copy, count, data, h, time } from "./dom.js";
import { Table } from "./table.js";

/** @type {import("../types").OwnAccountReply} */
let account = data();
let shownFactor = null;

handleSubmit($("#password"), async (form) => {
  await put("/api/account/password", { old: form.get("old"), new: form.get("new") });
  // The session is a new one, with a CSRF token of its own.
  location.reload();
  return "Password changed.";
});

/** @type {Table<import("../types").SessionRow>} */
const sessions = new Table(
  [
    { name: "browser", label: "Browser", value: (row) => row.browser },
    { name: "address", label: "Address", value: (row) => row.address },
    { name: "used_ms", label: "Last used", value: (row) => row.used_ms, show: (row) => time(row.used_ms) },
    { name: "created_ms", label: "Logged in", value: (row) => row.created_ms, show: (row) => time(row.created_ms) },
    {
      name: "action",
      label: "Action",
      value: (row) => (row.this ? "this browser" : ""),
      show: (row) => (row.this ? "this browser" : action("Log out", `${row.browser}, ${row.address}`, () => remove(`/api/account/sessions/${row.id}`), "That browser is logged out.", "#sessions-outcome")),
    },
  ],
  { name: "sessions", label: "Sessions", key: (row) => row.id, searchable: false },
);
$("#sessions").append(sessions.element);
$("#end-others").addEventListener("click", () =>
  attempt(async () => {
    const { ended } = await remove("/api/account/sessions");
    return `${count(ended, "session")} ended.`;
  }, "", "#sessions-outcome"),
);

/** @type {Table<import("../types").TokenRow>} */
const tokens = new Table(
  [
    { name: "label", label: "Token", value: (row) => row.label },
    { name: "scope", label: "Access", value: (row) => (row.scope === "read" ? "read" : "read and change") },
    { name: "experiment", label: "Experiment", value: (row) => row.experiment || "all" },
    { name: "used_ms", label: "Last used", value: (row) => row.used_ms, show: (row) => (row.used_ms ? time(row.used_ms) : "never") },
    { name: "ends_ms", label: "Expires", value: (row) => row.ends_ms, show: (row) => time(row.ends_ms) },
    {
      name: "action",
      label: "Action",
      value: () => "",
      show: (row) => action("Revoke", row.label, () => remove(`/api/account/tokens/${row.id}`), "The token was revoked.", "#token .outcome"),
    },
  ],
  { name: "tokens", label: "API tokens", key: (row) => row.id, searchable: false },
);
$("#tokens").append(tokens.element);
handleSubmit($("#token"), async (form) => {
  const made = await post("/api/account/tokens", {
    label: form.get("label"),
    scope: form.get("scope"),
    experiment: form.get("experiment").trim(),
    days: Number(form.get("days")),
  });
  $("#token").reset();
  await reload();
  return secret("Copy the token now. It is not shown again:", made.token);
});

function secret(sentence, text) {
  const button = h("button", { type: "button", class: "plain", onclick: () => copy(button, text) }, "Copy");
  return h("div", {}, h("p", {}, sentence), h("pre", { tabindex: "0", "aria-label": "Secret" }, text), button);
}

function action(label, of, work, sentence, outcome) {
  return h("button", { type: "button", class: "plain", "aria-label": `${label}: ${of}`, onclick: () => attempt(work, sentence, outcome) }, label);
}

/** Do something that changes the account, say how it went, and show the account as it is then. */
async function attempt(work, sentence, outcome) {
  const place = $(outcome);
  place.classList.remove("failed");
  try {
    const said = await work();
    place.replaceChildren(sentence || said);
    await reload();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    place.classList.add("failed");
    place.replaceChildren(...errorParagraphs(error));
  }
}

async function reload() {
  account = await get("/api/account");
  show();
}

function show() {
  sessions.show(account.sessions);
  tokens.show(account.tokens);
  $("#end-others").hidden = account.sessions.every((row) => row.this);
  showFactor();
}

function showFactor() {
  $("#factor-sentence").textContent = account.second_factor
    ? `Each login asks for a code of your authenticator app. ${count(account.recovery_codes, "recovery code")} left.`
    : "With a second factor, each login asks for a code of an authenticator app on your phone as well, so a stolen password is not enough. Scripts then need an API token.";
  if (shownFactor === account.second_factor) return; // recovery codes stay until the page is left
  shownFactor = account.second_factor;
  if (account.second_factor) $("#factor").replaceChildren(factorForm("Switch off", "Code, or a recovery code", switchOff));
  else $("#factor").replaceChildren(h("button", { type: "button", class: "second", onclick: setUp }, "Set up"));
}

function factorForm(label, codeLabel, work, ...above) {
  const form = h(
    "form",
    { class: "stack" },
    ...above,
    h("label", {}, codeLabel, h("input", { name: "code", autocomplete: "one-time-code", maxlength: "64", required: true })),
    h("label", {}, "Current password", h("input", { name: "password", type: "password", autocomplete: "current-password", required: true })),
    h("button", { type: "submit" }, label),
    h("div", { class: "outcome", role: "status" }),
  );
  handleSubmit(form, work);
  return form;
}

async function switchOff(form) {
  await remove("/api/account/second-factor", { code: form.get("code"), password: form.get("password") });
  await reload();
}

async function setUp() {
  const begun = await post("/api/account/second-factor");
  const picture = h("img", { class: "qr-code", alt: "QR code of the secret below", src: begun.qr_code });
  const form = factorForm(
    "Switch on",
    "Code that the app shows",
    async (fields) => {
      const done = await put("/api/account/second-factor", { setup: begun.setup, code: fields.get("code"), password: fields.get("password") });
      await reload();
      $("#factor").prepend(secret("Write down these recovery codes. Each replaces one code, and they are not shown again:", done.recovery_codes.join("\n")));
    },
    h("p", {}, "Scan this with an authenticator app, or type the secret into it:"),
    picture,
    h("code", { class: "block" }, begun.secret),
  );
  $("#factor").replaceChildren(form);
  $("input", form).focus();
}

/** @param {import("../types").ProlificAccountReply} connection */
function showConnection(connection) {
  const workspace = connection.workspace ? ` for the workspace ${connection.workspace}` : "";
  const webhooks = Object.entries(connection.events).map(([what, times]) => `${times} ${what}`).join(", ");
  $("#prolific-sentence").textContent = !connection.token
    ? "With a token, Salmon makes drafts of studies at Prolific, reads their submissions, and pays what you confirm."
    : `There is a token${workspace}${connection.from_environment ? ", from the environment of the server" : ""}.${webhooks ? ` Events from Prolific: ${webhooks}.` : ""}`;
  $("#prolific-remove").hidden = !connection.token || connection.from_environment;
}

if ($("#prolific")) {
  handleSubmit($("#prolific"), async (form) => {
    const token = String(form.get("token"));
    $("#prolific [name=token]").value = "";
    showConnection(await put("/api/account/prolific", { token, workspace: String(form.get("workspace")).trim() }));
    return "The token works and was saved.";
  });
  // Without this script, the browser would send the token in a form of its own.
  $("#prolific [type=submit]").disabled = false;
  $("#prolific-remove").addEventListener("click", () =>
    attempt(async () => {
      showConnection(await remove("/api/account/prolific"));
      return "The token was removed.";
    }, "", "#prolific .outcome"),
  );
  showConnection(await get("/api/account/prolific"));
}

show();
