// The note on every page of a rehearsal: how far its simulated people are, and the button that removes it.

import { at, Failure, get, remove } from "./api.js";
import { $, data, h, number, time } from "./dom.js";

const AGAIN_MS = 1000;

/** @type {{ slug: string }} */
const { slug } = data();
const route = /** @type {const} */ (`/api/experiments/${slug}/rehearsal`);

async function follow() {
  for (;;) {
    const { running, answers, expected_answers: expected, outcome, removed_ms: removed } = await get(route);
    $("#rehearsal-removed").replaceChildren("It is removed by itself on ", time(removed), ".");
    $("#remove-rehearsal")?.replaceChildren(running ? "Cancel and remove the rehearsal" : "Remove the rehearsal");
    if (!running) {
      $("#rehearsal-progress").textContent = outcome;
      return;
    }
    const bar = h("progress", { max: expected, value: Math.min(answers, expected), "aria-label": "Answers of simulated people" });
    $("#rehearsal-progress").replaceChildren(bar, ` ${number(answers)} of about ${number(expected)} answers`);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function tell(error) {
  if (!(error instanceof Failure)) throw error;
  $("#rehearsal-outcome").textContent = `${error.message} ${error.hint}`;
}

$("#remove-rehearsal")?.addEventListener("click", async ({ target }) => {
  target.disabled = true;
  try {
    const { of } = await remove(route);
    location.assign(at(`/console/experiments/${of}/settings`));
  } catch (error) {
    target.disabled = false;
    tell(error);
  }
});

follow().catch(tell);
