// The list of experiments.

import { at, handleSubmit, post } from "./api.js";
import { $, h, showCopies, showTimes } from "./dom.js";
import { makeSortable } from "./table.js";

showTimes();
showCopies();
for (const table of document.querySelectorAll("table[data-sortable]")) makeSortable(table);

if ($("#import")) handleSubmit($("#import"), async (form) => {
  const made = await post("/api/experiments/import", form);
  const link = h("a", { href: at(`/console/experiments/${made.slug}/`) }, made.slug);
  // The form is long: what came of it must not stand below the window.
  requestAnimationFrame(() => $("#import .outcome").scrollIntoView({ block: "center" }));
  return h("div", {}, h("p", {}, "Imported: ", link, "."), ...(made.notes ?? []).map((note) => h("p", { class: "quiet" }, note)));
});
