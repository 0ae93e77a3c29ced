// The account page: password, accounts and invitations.

import { post, put, remove, handleSubmit } from "./api.js";
import { $, copy, data, h, time } from "./dom.js";
import { Table } from "./table.js";

handleSubmit($("#password"), async (form) => {
  await put("/api/account/password", { old: form.get("old"), new: form.get("new") });
  $("#password").reset();
  return "Password changed.";
});

const place = $("#accounts");
if (place) {
  let { accounts } = data();
  const own = $("#password [name=username]").value;
  const table = new Table(
    [
      { name: "name", label: "Name", value: (row) => row.name },
      { name: "role", label: "Role", value: (row) => row.role },
      { name: "created", label: "Created", value: (row) => row.created_ms, show: (row) => time(row.created_ms) },
      {
        name: "own",
        label: "Action",
        value: (row) => (row.name === own ? "you" : ""),
        show: (row) => (row.name === own ? "you" : h("button", { type: "button", class: "plain", onclick: () => removeAccount(row) }, `Remove ${row.name}`)),
      },
    ],
    { name: "accounts", label: "Accounts", key: (row) => row.name, searchable: false },
  );
  const removeAccount = async (row) => {
    if (!confirm(`${row.name} will no longer be able to log in. Their experiments are kept, and you can see them.`)) return;
    await remove(`/api/accounts/${encodeURIComponent(row.name)}`);
    accounts = accounts.filter(({ name }) => name !== row.name);
    table.show(accounts);
  };
  place.append(table.element);
  table.show(accounts);

  handleSubmit($("#invite"), async (form) => {
    const { link } = await post("/api/invitations", { name: form.get("name") });
    const button = h("button", { type: "button", class: "plain", onclick: () => copy(button, link) }, "Copy");
    return h("div", {}, h("p", {}, "Send them this link. It works once and expires after a week:"), h("code", { class: "block" }, link), button);
  });
}
