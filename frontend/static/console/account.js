// Passwords and accounts.

import { post, put, remove, submitting } from "./api.js";
import { $, copy, data, h, time } from "./dom.js";
import { Table } from "./table.js";

submitting($("#password"), async (form) => {
  await put("/api/account/password", { old: form.get("old"), new: form.get("new") });
  $("#password").reset();
  return "Your password is changed.";
});

const place = $("#accounts");
if (place) {
  let { accounts } = data();
  const own = $("#password [name=username]").value;
  const table = new Table(
    [
      { name: "name", label: "Name", value: (row) => row.name },
      { name: "role", label: "Role", value: (row) => row.role },
      { name: "created", label: "Since", value: (row) => row.created_ms, show: (row) => time(row.created_ms) },
      {
        name: "own",
        label: "What to do",
        value: (row) => (row.name === own ? "yours" : ""),
        show: (row) => (row.name === own ? "yours" : h("button", { type: "button", class: "plain", onclick: () => take(row) }, `Take ${row.name} away`)),
      },
    ],
    { name: "accounts", label: "Accounts", key: (row) => row.name, searchable: false },
  );
  const take = async (row) => {
    if (!confirm(`${row.name} will not be able to log in any more. Their experiments stay, and you see them.`)) return;
    await remove(`/api/accounts/${encodeURIComponent(row.name)}`);
    accounts = accounts.filter(({ name }) => name !== row.name);
    table.show(accounts);
  };
  place.append(table.element);
  table.show(accounts);

  submitting($("#invite"), async (form) => {
    const { link } = await post("/api/invitations", { name: form.get("name") });
    const button = h("button", { type: "button", class: "plain", onclick: () => copy(button, link) }, "Copy");
    return h("div", {}, h("p", {}, "Send them this link. It works once, within a week:"), h("code", { class: "block" }, link), button);
  });
}
