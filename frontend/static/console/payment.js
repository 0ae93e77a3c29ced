// The payment page: what to do about everybody's payment, with reasons, sums and the files that platforms take.

import { at, get } from "./api.js";
import { $, count, data, h, showCopies } from "./dom.js";
import { Orders, money } from "./prolific_orders.js";
import { Table } from "./table.js";

showCopies();
/** @type {import("../types").ParticipantsData} */
const { slug, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);

const ACTIONS = { bonus: "Bonus", "look at": "Look at", nothing: "Nothing to do", pay: "Pay", "pay by hand": "Pay by hand", "screened out": "Screened out" };
// Prolific takes so many in one payment; what is left is paid by another.
const MOST_AT_ONCE = 500;
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
    h("a", { class: "button", href: at(`${base}/payment/approve.csv`), download: true }, `People to pay ${where}`.trim()),
    h("a", { class: "button second", href: at(`${base}/payment/bonus.csv`), download: true }, `Bonuses ${where}`.trim()),
    h("a", { class: "button second", href: at(`${base}/payment/all.csv`), download: true }, "Everything with reasons"),
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

/**
 * Show what Prolific can be asked to pay: those to pay, and their bonuses.
 * @param {import("../types").PaymentReply} payment
 */
async function showProlific({ rows }) {
  /** @param {import("../types").ProlificReply} reply */
  const showStudy = (reply) => {
    $("#prolific").hidden = !reply.study;
    if (!reply.study) return;
    const { currency } = reply.study;
    const limit = reply.limit === null ? "The file has no spend_at_most, so nothing can be paid." : `${money(reply.committed, currency)} of ${money(reply.limit, currency)} are promised and paid, without Prolific's fees.`;
    $("#prolific-sentence").textContent = reply.token ? limit : "Your account has no token for Prolific: enter it on the page Account.";
    $("#prolific-approve").disabled = $("#prolific-bonus").disabled = !reply.token;
    $("#prolific-payments").replaceChildren(...orders.payments(reply));
  };
  const orders = new Orders($("#prolific"), slug, showStudy);
  const some = (people) => people.slice(0, MOST_AT_ONCE);
  $("#prolific-approve").addEventListener("click", () =>
    orders.pay({ action: "approve", participants: some([...new Set(rows.filter(({ action }) => action === "pay").map(({ participant }) => participant))]) }),
  );
  $("#prolific-bonus").addEventListener("click", () => {
    /** @type {Map<string, number>} */
    const bonuses = new Map();
    for (const { action, amount, participant } of rows) {
      if (action === "bonus" && amount !== null) bonuses.set(participant, (bonuses.get(participant) ?? 0) + Math.round(100 * Number(amount)));
    }
    return orders.pay({ action: "bonus", bonuses: Object.fromEntries(some([...bonuses])) });
  });
  showStudy(await get(`${base}/prolific`));
}

if (mayEdit) {
  const payment = await get(`${base}/payment`);
  show(payment);
  if (payment.platform === "prolific") await showProlific(payment);
} else $("#payment-state").textContent = "Who may only look at this experiment does not see platform ids and payments.";
