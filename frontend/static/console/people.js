// The page of the server's owner: accounts, invitations and the log.

import { Failure, errorParagraphs, get, handleSubmit, post, put, remove } from "./api.js";
import { $, copy, data, h, time } from "./dom.js";
import { Table } from "./table.js";

const ROLES = ["owner", "experimenter", "viewer"];

/** @type {import("../types").PeopleData} */
const page = data();
const own = page.own;

/** @type {Table<import("../types").AccountRow>} */
const accounts = new Table(
  [
    { name: "name", label: "Name", value: (row) => row.name },
    { name: "role", label: "Role", value: (row) => row.role, show: (row) => (row.name === own ? row.role : roleChoice(row)) },
    { name: "second_factor", label: "Second factor", value: (row) => (row.second_factor ? "yes" : "no") },
    { name: "created_ms", label: "Created", value: (row) => row.created_ms, show: (row) => time(row.created_ms) },
    { name: "own", label: "Action", value: (row) => (row.name === own ? "you" : ""), show: (row) => (row.name === own ? "you" : actions(row)) },
  ],
  { name: "accounts", label: "Accounts", key: (row) => row.name, searchable: false },
);
$("#accounts").append(accounts.element);

/** @param {import("../types").AccountRow} row */
function roleChoice(row) {
  const choice = h(
    "select",
    { "aria-label": `Role of ${row.name}`, onchange: () => attempt(() => put(`${path(row)}/role`, { role: choice.value }), `${row.name} has another role now and has to log in again.`) },
    ...ROLES.map((role) => h("option", { value: role }, role)),
  );
  choice.value = row.role;
  return choice;
}

/** @param {import("../types").AccountRow} row */
function actions(row) {
  const button = (label, onclick) => h("button", { type: "button", class: "plain", onclick }, label);
  return h(
    "span",
    { class: "row" },
    button(`Reset password of ${row.name}`, () => attempt(async () => link(await post(`${path(row)}/reset`), "This link sets a new password. It works once and expires after a day:"))),
    row.second_factor
      ? button(`Remove second factor of ${row.name}`, () => attempt(() => remove(`${path(row)}/second-factor`), `${row.name} logs in with the password alone now.`))
      : null,
    button(`Remove ${row.name}`, () => {
      if (confirm(`${row.name} will no longer be able to log in, and what was shared with them is not any more. Their experiments become yours.`)) {
        attempt(() => remove(path(row)), `${row.name} was removed.`);
      }
    }),
  );
}

/** @param {import("../types").AccountRow} row */
const path = (row) => /** @type {const} */ (`/api/accounts/${encodeURIComponent(row.name)}`);

/** @type {Table<import("../types").InvitationRow>} */
const invitations = new Table(
  [
    { name: "name", label: "For", value: (row) => row.name },
    { name: "purpose", label: "Purpose", value: (row) => (row.purpose === "reset" ? "new password" : `new account, ${row.role}`) },
    { name: "by", label: "By", value: (row) => row.by },
    { name: "created_ms", label: "Created", value: (row) => row.created_ms, show: (row) => time(row.created_ms) },
    { name: "used_ms", label: "Used", value: (row) => row.used_ms, show: (row) => (row.used_ms ? time(row.used_ms) : row.open ? "not yet" : "expired") },
    {
      name: "action",
      label: "Action",
      value: () => "",
      show: (row) =>
        row.open
          ? h("button", { type: "button", class: "plain", "aria-label": `Revoke the link for ${row.name}`, onclick: () => attempt(() => remove(`/api/invitations/${row.id}`), "The link is void.") }, "Revoke")
          : "",
    },
  ],
  { name: "invitations", label: "Invitations", key: (row) => row.id, searchable: false },
);
$("#invitations").append(invitations.element);

handleSubmit($("#invite"), async (form) => {
  const made = await post("/api/invitations", { name: form.get("name"), role: form.get("role") });
  await reload();
  return link(made, "Send them this link. It works once and expires after a week:");
});

/** @type {Table<import("../types").Access>} */
const log = new Table(
  [
    { name: "at_ms", label: "When", value: (row) => row.at_ms, show: (row) => time(row.at_ms) },
    { name: "account", label: "Who", value: (row) => row.account },
    { name: "address", label: "From", value: (row) => row.address },
    { name: "what", label: "What", value: (row) => row.what },
    { name: "detail", label: "Details", value: (row) => row.detail },
  ],
  { name: "log", label: "Log" },
);
$("#log").append(log.element);

/** Return a link with the sentence that goes with it; where the server does not know its own address, the browser does. */
function link(made, sentence) {
  const address = new URL(made.link, location.href).href;
  const button = h("button", { type: "button", class: "plain", onclick: () => copy(button, address) }, "Copy");
  return h("div", {}, h("p", {}, sentence), h("code", { class: "block" }, address), button);
}

/** Do something, say how it went, and show everything as it is then. */
async function attempt(work, sentence = "") {
  const place = $("#accounts-outcome");
  place.classList.remove("failed");
  try {
    const said = await work();
    place.replaceChildren(sentence || said);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    place.classList.add("failed");
    place.replaceChildren(...errorParagraphs(error));
  }
  await reload();
}

async function reload() {
  const [people, links, entries] = await Promise.all([get("/api/accounts"), get("/api/invitations"), get("/api/log")]);
  show(people, links, entries);
}

/**
 * @param {import("../types").AccountRow[]} people
 * @param {import("../types").InvitationRow[]} links
 * @param {import("../types").Access[]} entries
 */
function show(people, links, entries) {
  accounts.show(people);
  invitations.show(links);
  log.show(entries);
}

show(page.accounts, page.invitations, page.log);
