// The payment page: what to do about everybody's payment, with reasons, sums and the files that platforms take.

import { get } from "./api.js";
import { $, count, data, h, showCopies } from "./dom.js";
import { Table } from "./table.js";

showCopies();
/** @type {import("../types").ParticipantsData} */
const { slug, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);

const ACTIONS = { bonus: "Bonus", "look at": "Look at", nothing: "Nothing to do", pay: "Pay", "pay by hand": "Pay by hand", "screened out": "Screened out" };
const FILES = { prolific: "for Prolific", connect: "for Connect", mturk: "for Mechanical Turk" };

/** @param {import("../types").PaymentReply} payment */
function show(payment) {
  const { currency, fresh, platform, rows, sums } = payment;
  $("#payment-state").textContent = fresh ? "" : "Catch trials are still being counted: load the page again in a moment before you pay bonuses.";
  $("#sums").append(
    ...sums
      .filter((sum) => sum.count > 0)
      .flatMap((sum) => [
        h("dt", {}, ACTIONS[sum.action]),
        h("dd", {}, `${count(sum.count, "participant")}${Number(sum.amount) ? `, ${sum.amount} ${currency}` : ""}`),
      ]),
  );
  const where = FILES[platform] ?? "";
  $("#files").append(
    h("a", { class: "button", href: `${base}/payment/approve.csv`, download: true }, `People to pay ${where}`.trim()),
    h("a", { class: "button second", href: `${base}/payment/bonus.csv`, download: true }, `Bonuses ${where}`.trim()),
    h("a", { class: "button second", href: `${base}/payment/all.csv`, download: true }, "Everything with reasons"),
  );
  const table = new Table(
    [
      { name: "platform_id", label: "Platform ID", value: (row) => row.platform_id },
      { name: "participant", label: "Participant", value: (row) => row.participant },
      { name: "status", label: "Status", value: (row) => row.status },
      { name: "platform_status", label: "On the platform", value: (row) => row.platform_status },
      { name: "action", label: "What to do", value: (row) => ACTIONS[row.action] },
      { name: "amount", label: `Amount (${currency})`, value: (row) => (row.amount === null ? null : Number(row.amount)), show: (row) => row.amount ?? "–", number: true },
      { name: "reason", label: "Why", value: (row) => row.reason },
    ],
    { name: `${slug}-payment`, label: "Payment" },
  );
  table.show(rows);
  $("#list").append(table.element);
}

if (mayEdit) show(await get(`${base}/payment`));
else $("#payment-state").textContent = "Who may only look at this experiment does not see platform ids and payments.";
