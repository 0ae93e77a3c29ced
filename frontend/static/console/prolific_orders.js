// What is ordered at Prolific on a page: each order that costs money shows its sum and asks, and tells how it went.

import { Failure, errorParagraphs, get, post, remove } from "./api.js";
import { count, h, number, time } from "./dom.js";

const STATES = { begun: "not confirmed", prepared: "not confirmed", paying: "not confirmed", done: "paid", refused: "not paid" };
const ACTIONS = { approve: "Approvals", bonus: "Bonuses" };

/** Return an amount in hundredths as people write it. */
export const money = (amount, currency = "") => `${(amount / 100).toFixed(2)} ${currency}`.trim();

export class Orders {
  #section;
  /** @type {`/api/experiments/${string}/prolific`} */
  #base;
  #show;
  #question;
  #outcome;

  /** `section` holds `.question` and `.outcome`; `show` is called with what the server says about the study. */
  constructor(section, slug, show) {
    this.#section = section;
    this.#base = `/api/experiments/${slug}/prolific`;
    this.#show = show;
    this.#question = section.querySelector(".question");
    this.#outcome = section.querySelector(".outcome.orders");
  }

  /** Do something at Prolific, and show how it went (`work` may return a sentence) and the study as it is then. */
  async attempt(work, sentence = "") {
    this.#outcome.classList.remove("failed");
    this.#outcome.replaceChildren("Asking Prolific…");
    this.#setBusy(true);
    try {
      const reply = await work();
      if (reply?.payments) this.#show(reply);
      this.#outcome.replaceChildren(typeof reply === "string" ? reply : sentence);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#outcome.classList.add("failed");
      this.#outcome.replaceChildren(...errorParagraphs(error));
      this.#show(await get(this.#base));
    } finally {
      this.#setBusy(false);
    }
  }

  /** Ask before something is ordered; the button with `label` orders it. */
  ask(sentences, label, order) {
    const close = () => (this.#question.hidden = true);
    const confirm = h("button", { type: "button", onclick: () => [close(), order()] }, label);
    this.#question.replaceChildren(
      ...sentences.map((sentence) => h("p", {}, sentence)),
      h("div", { class: "row" }, confirm, h("button", { type: "button", class: "second", onclick: close }, "Cancel")),
    );
    this.#question.hidden = false;
    confirm.focus();
  }

  /**
   * Show what a payment would do, and pay it when somebody confirms it.
   * @param {import("../types").PlanBody} what
   */
  pay(what) {
    return this.attempt(async () => {
      const plan = await post(`${this.#base}/payments/plan`, what);
      if (plan.problem) throw new Failure({ message: plan.problem }, 409);
      const others = plan.left_out.length ? [`${count(plan.left_out.length, "participant")} left out: ${[...new Set(plan.left_out.map(({ why }) => why))].join(" ")}`] : [];
      if (!plan.count) throw new Failure({ message: "There is nobody to pay through Prolific.", hint: others.join(" ") }, 409);
      const key = crypto.randomUUID();
      const sum = money(plan.sum, plan.currency);
      const does = what.action === "approve" ? `This approves ${count(plan.count, "submission")} and pays ${sum}` : `This pays bonuses of ${sum} to ${count(plan.count, "participant")}`;
      this.ask([`${does}, without Prolific's fees. It cannot be undone.`, ...others], `Pay ${sum}`, () =>
        this.attempt(() => post(`${this.#base}/payments`, { ...what, key, count: plan.count, sum: plan.sum }), "Prolific has confirmed the payment."),
      );
      return await get(this.#base);
    });
  }

  /**
   * Return the table of payments; those that Prolific has not confirmed can be checked and given up.
   * @param {import("../types").ProlificReply} reply
   */
  payments({ payments: rows, study }) {
    if (!rows.length) return [];
    const button = (label, work) => h("button", { type: "button", class: "plain", onclick: work }, label);
    const check = (row) => this.attempt(() => post(`${this.#base}/payments/${row.key}/check`), "Prolific has confirmed the payment.");
    const giveUp = (row) =>
      this.ask([`Give up only if Prolific shows that these ${money(row.sum)} were not paid. They can then be paid again.`], "Give up the payment", () =>
        this.attempt(() => remove(`${this.#base}/payments/${row.key}`), "It was given up."),
      );
    const actions = (row) => (row.open && study ? [button("Check", () => check(row)), button("Give up", () => giveUp(row))] : []);
    const heads = ["When", "What", "Submissions", "Sum", "By", "State", "Action"];
    const cells = (row) => [time(row.at_ms), ACTIONS[row.action], number(row.count), money(row.sum, study?.currency), row.by, STATES[row.state]];
    const table = h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...cells(row).map((cell) => h("td", {}, cell)), h("td", {}, ...actions(row))))),
    );
    return [h("h3", {}, "Payments"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Payments" }, table)];
  }

  #setBusy(busy) {
    for (const button of this.#section.querySelectorAll("button")) button.disabled = busy;
  }
}
