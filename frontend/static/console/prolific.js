// The study of an experiment at Prolific: its draft, places, submissions and payments. What costs money shows its sum and asks.

import { Failure, errorParagraphs, get, handleSubmit, post, put, remove } from "./api.js";
import { $, count, h, number, time } from "./dom.js";

const STATES = { begun: "not confirmed", prepared: "not confirmed", paying: "not confirmed", done: "paid", refused: "not paid" };
const ACTIONS = { approve: "Approvals", bonus: "Bonuses" };

/** Return an amount in hundredths as people write it. */
export const money = (amount, currency = "") => `${(amount / 100).toFixed(2)} ${currency}`.trim();
const words = (status) => status.toLowerCase().replaceAll("_", " ");

/** Show the section about an experiment, and keep it up to date. */
export async function showProlific(slug) {
  const base = /** @type {const} */ (`/api/experiments/${slug}/prolific`);
  /** @type {import("../types").ProlificReply} */
  let shown;

  /** Do something at Prolific, and show how it went (`work` may return a sentence) and the study as it is then. */
  async function attempt(work, sentence = "") {
    const outcome = $("#prolific-outcome");
    outcome.classList.remove("failed");
    outcome.replaceChildren("Asking Prolific…");
    setBusy(true);
    try {
      const reply = await work();
      if (reply?.payments) show(reply);
      outcome.replaceChildren(typeof reply === "string" ? reply : sentence);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      outcome.classList.add("failed");
      outcome.replaceChildren(...errorParagraphs(error));
      show(await get(base));
    } finally {
      setBusy(false);
    }
  }

  function setBusy(busy) {
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("#prolific button"))) button.disabled = busy;
  }

  /** Ask before something is ordered; the button with `label` orders it. */
  function ask(sentences, label, order) {
    const place = $("#prolific-question");
    const close = () => (place.hidden = true);
    const confirm = h("button", { type: "button", onclick: () => [close(), order()] }, label);
    place.replaceChildren(
      ...sentences.map((sentence) => h("p", {}, sentence)),
      h("div", { class: "row" }, confirm, h("button", { type: "button", class: "second", onclick: close }, "Cancel")),
    );
    place.hidden = false;
    confirm.focus();
  }

  const button = (label, work, kind = "second") => h("button", { type: "button", class: kind, onclick: work }, label);
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];

  /** @param {import("../types").ProlificReply} reply */
  function show(reply) {
    shown = reply;
    const { study } = reply;
    $("#prolific").hidden = false;
    $("#prolific-state").replaceChildren(...state(reply));
    $("#prolific-problems").replaceChildren(...(study ? [] : reply.problems.map((problem) => h("li", { class: "warning" }, problem))));
    $("#prolific-facts").replaceChildren(...(study ? studyFacts(reply) : reply.places ? draftFacts(reply) : []));
    $("#prolific-actions").replaceChildren(...(reply.token ? (study ? studyActions() : draftActions(reply)) : []));
    $("#prolific-places").hidden = !reply.token || !study;
    $("#prolific-enter").hidden = !reply.token || Boolean(study);
    if (study) $("#prolific-places [name=places]").value = study.places;
    $("#prolific-payments").replaceChildren(...payments(reply));
  }

  function state({ token, study }) {
    if (!token) return ["Your account has no token for Prolific. ", h("a", { href: "/console/account#prolific-title" }, "Enter it on the page Account"), ", or use the form above."];
    if (!study) return ["There is no study at Prolific yet. A draft costs nothing, and nobody sees it until you publish it there."];
    return [`The study is ${words(study.status)}. `, h("a", { href: study.page, target: "_blank", rel: "noreferrer" }, "Open it on Prolific")];
  }

  const draftFacts = ({ reward, places, minutes, draft_cost: cost, limit }) => [
    ...fact("Reward", `${money(reward)} for ${count(minutes, "minute")}`),
    ...fact("Places", number(places)),
    ...fact("Cost without Prolific's fees", money(cost)),
    ...fact("Limit (spend_at_most)", limit === null ? "none: nothing can be paid" : money(limit)),
  ];

  function studyFacts({ study, committed, limit, webhooks }) {
    const counts = Object.entries(study.counts).map(([status, times]) => `${times} ${words(status)}`).join(", ");
    return [
      ...fact("Places", `${number(study.taken)} of ${number(study.places)} taken`),
      ...fact("Reward", money(study.reward, study.currency)),
      ...fact("Submissions", counts || "none yet"),
      ...fact("Promised and paid, without fees", `${money(committed, study.currency)} of ${limit === null ? "no limit in the file: nothing can be paid" : money(limit, study.currency)}`),
      ...fact("Statuses", webhooks ? "sent by Prolific at once, and asked for" : "asked for, less and less often while nothing changes"),
      ...fact("Seen", time(study.seen_ms)),
    ];
  }

  const draftActions = ({ problems, draft_cost: cost, places }) =>
    problems.length
      ? []
      : [
          button("Create the draft study", () =>
            ask(
              [`Once you publish it on Prolific, the study promises ${money(cost)} for ${count(places, "place")}, without Prolific's fees.`],
              "Create the draft",
              () => attempt(() => post(`${base}/study`, { cost }), "The draft is at Prolific. Look at it there, then publish it."),
            ),
          ""),
        ];

  const studyActions = () => [
    button("Refresh", () => attempt(() => post(`${base}/refresh`)), ""),
    button("Approve who finished", approve),
    ...(shown.webhooks ? [] : [button("Get statuses at once", () => attempt(() => post(`${base}/webhooks`), "Prolific now sends statuses as they change."))]),
    ...(shown.not_from.length ? [button("Update earlier waves", updateGroups)] : []),
    button("Disconnect", () =>
      ask(["Salmon forgets which study this is. At Prolific nothing changes, and what was paid stays known."], "Disconnect", () => attempt(() => remove(`${base}/study`), "The study is disconnected.")),
    ),
  ];

  const updateGroups = () =>
    attempt(async () => {
      const { people } = await post(`${base}/groups`);
      const kept = Object.entries(people).map(([name, times]) => `${count(times, "person", "people")} of ${name}`);
      return `Kept out: ${kept.join(", ")}.`;
    });

  async function approve() {
    const what = /** @type {const} */ ({ action: "approve", everybody: true });
    await attempt(async () => {
      const plan = await post(`${base}/payments/plan`, what);
      if (plan.problem) throw new Failure({ message: plan.problem }, 409);
      if (!plan.count) throw new Failure({ message: "Nobody who finished here waits for an approval.", hint: "Nothing was paid." }, 409);
      const key = crypto.randomUUID();
      const others = plan.left_out.length ? [`${count(plan.left_out.length, "submission")} left out: ${[...new Set(plan.left_out.map(({ why }) => why))].join(" ")}`] : [];
      ask(
        [`This approves ${count(plan.count, "submission")} and pays ${money(plan.sum, plan.currency)}, without Prolific's fees. It cannot be undone.`, ...others],
        `Pay ${money(plan.sum, plan.currency)}`,
        () => attempt(() => post(`${base}/payments`, { ...what, key, count: plan.count, sum: plan.sum }), "Prolific has approved them."),
      );
      show(await get(base));
    });
  }

  /** @param {import("../types").ProlificReply} reply */
  function payments({ payments: rows, study }) {
    if (!rows.length) return [];
    const actions = (row) =>
      row.open && study
        ? [
            button("Check", () => attempt(() => post(`${base}/payments/${row.key}/check`), "Prolific has confirmed it."), "plain"),
            button("Give up", () => ask([`Give up only if Prolific shows that these ${money(row.sum)} were not paid. They can then be paid again.`], "Give up", () => attempt(() => remove(`${base}/payments/${row.key}`), "It was given up.")), "plain"),
          ]
        : [];
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

  $("#prolific-places").addEventListener("submit", (event) => {
    event.preventDefault();
    const places = Number(new FormData(event.target).get("places"));
    const { study } = shown;
    const cost = Math.max(0, (places - study.places) * study.reward);
    ask(
      [`${count(places - study.places, "further place")} of ${money(study.reward, study.currency)}: ${money(cost, study.currency)}, without Prolific's fees. Prolific takes no place back.`],
      "Raise places",
      () => attempt(() => post(`${base}/places`, { places, cost }), "The places were raised."),
    );
  });

  handleSubmit($("#prolific-enter"), async (form) => {
    await attempt(() => put(`${base}/study`, { study: String(form.get("study")).trim() }), "The study is connected.");
  });

  show(await get(base));
}
