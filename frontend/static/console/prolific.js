// The study of an experiment at Prolific: its draft, its places, and its submissions by status.

import { at, get, handleSubmit, post, put, remove } from "./api.js";
import { $, count, h, number, time } from "./dom.js";
import { Orders, money } from "./prolific_orders.js";

const words = (status) => status.toLowerCase().replaceAll("_", " ");

/** Show the section about an experiment, and keep it up to date. */
export async function showProlific(slug) {
  const base = /** @type {const} */ (`/api/experiments/${slug}/prolific`);
  const orders = new Orders($("#prolific"), slug, show);
  /** @type {import("../types").ProlificReply} */
  let shown;

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
  }

  function state({ token, study }) {
    if (!token) return ["Your account has no token for Prolific. ", h("a", { href: at("/console/account#prolific-title") }, "Enter it on the page Account"), ", or use the form above."];
    if (!study) return ["There is no study at Prolific yet. A draft costs nothing, and nobody sees it until you publish it there."];
    return [`The study is ${words(study.status)}. `, h("a", { href: study.page, target: "_blank", rel: "noreferrer" }, "Open it on Prolific"), ". Approvals and bonuses are on the page ", h("a", { href: "payment" }, "Payment"), "."];
  }

  const draftFacts = ({ reward, places, minutes, currency, draft_cost: cost, limit }) => [
    ...fact("Reward", `${money(reward, currency)} for ${count(minutes, "minute")}`),
    ...fact("Places", number(places)),
    ...fact("Cost without Prolific's fees", money(cost, currency)),
    ...fact("Limit (spend_at_most)", limit === null ? "none: nothing can be paid" : money(limit, currency)),
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

  const draftActions = ({ problems, draft_cost: cost, places, currency }) =>
    problems.length
      ? []
      : [
          button(
            "Create the draft study",
            () =>
              orders.ask(
                [`Once you publish it on Prolific, the study promises ${money(cost, currency)} for ${count(places, "place")}, without Prolific's fees.`],
                "Create the draft",
                () => orders.attempt(() => post(`${base}/study`, { cost }), "The draft is at Prolific. Look at it there, then publish it."),
              ),
            "",
          ),
        ];

  const studyActions = () => [
    button("Refresh", () => orders.attempt(() => post(`${base}/refresh`)), ""),
    ...(shown.webhooks ? [] : [button("Get statuses at once", () => orders.attempt(() => post(`${base}/webhooks`), "Prolific now sends statuses as they change."))]),
    ...(shown.not_from.length ? [button("Update earlier waves", updateGroups)] : []),
    button("Disconnect", () =>
      orders.ask(["Salmon forgets which study this is. At Prolific nothing changes, and what was paid stays known."], "Disconnect", () => orders.attempt(() => remove(`${base}/study`), "The study is disconnected.")),
    ),
  ];

  const updateGroups = () =>
    orders.attempt(async () => {
      const { people } = await post(`${base}/groups`);
      const kept = Object.entries(people).map(([name, times]) => `${count(times, "person", "people")} of ${name}`);
      return `Kept out: ${kept.join(", ")}.`;
    });

  $("#prolific-places").addEventListener("submit", (event) => {
    event.preventDefault();
    const places = Number(new FormData(event.target).get("places"));
    const { study } = shown;
    const cost = Math.max(0, (places - study.places) * study.reward);
    orders.ask(
      [`${count(places - study.places, "further place")} of ${money(study.reward, study.currency)}: ${money(cost, study.currency)}, without Prolific's fees. Prolific takes no place back.`],
      "Raise places",
      () => orders.attempt(() => post(`${base}/places`, { places, cost }), "The places were raised."),
    );
  });

  handleSubmit($("#prolific-enter"), (form) =>
    orders.attempt(() => put(`${base}/study`, { study: String(form.get("study")).trim() }), "The study is connected."),
  );

  show(await get(base));
}
