// The recruitment page: links and steps for the platform, a check of links, the QR code and one-time links.

import { at, get, handleSubmit, post } from "./api.js";
import { $, copy, data, h, showCopies } from "./dom.js";
import { showProlific } from "./prolific.js";

showCopies();
/** @type {import("../types").ParticipantsData} */
const { slug, may_edit: mayEdit } = data();
const base = /** @type {const} */ (`/api/experiments/${slug}`);

const PLATFORMS = { connect: "CloudResearch Connect", link: "a link of your own", mturk: "Mechanical Turk", prolific: "Prolific", sona: "SONA" };

const copied = (text) => h("button", { type: "button", class: "plain", onclick: (event) => copy(event.target, text) }, "Copy");
const fact = (name, value, { copies = true } = {}) => (value ? [h("dt", {}, name), h("dd", {}, h("code", {}, value), copies ? copied(value) : null)] : []);

/** @param {import("../types").GuideReply} guide */
function show(guide) {
  const state = guide.open ? "" : " The experiment is not open yet, so participants are turned away.";
  const secure = guide.secure ? "" : " Its address begins with http://: platforms need https://.";
  $("#guide-state").textContent = `Participants come from ${PLATFORMS[guide.platform]}, as the file says under recruitment.platform.${state}${secure}`;
  $("#addresses").append(
    ...fact("Link for the platform", guide.link),
    ...fact("Completion code", guide.code),
    ...fact("Return address", guide.back, { copies: false }),
  );
  $("#steps").append(...guide.steps.map((step) => h("li", {}, step)));
  $("#test").href = guide.test;
  $("#create").hidden = !guide.create;
  if (guide.create) $("#create").href = guide.create;
  $("#qr").src = at(`${base}/recruitment/qr.svg`);
  $("#save-qr").href = at(`${base}/recruitment/qr.svg`);
  $("#save-qr").download = `${slug}-qr.svg`;
}

handleSubmit($("#check"), async (form) => {
  const problems = await post(`${base}/recruitment/check`, { link: String(form.get("link")) });
  return problems.length ? h("ul", { class: "sentences" }, ...problems.map((problem) => h("li", { class: "warning" }, problem))) : "This link is right.";
});

$("#invitations").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  location.assign(at(`${base}/recruitment/invitations.csv?count=${form.get("count")}&first=${form.get("first")}`));
});

if (mayEdit) {
  const guide = await get(`${base}/recruitment`);
  show(guide);
  if (guide.platform === "prolific") await showProlific(slug);
} else $("#guide-state").textContent = "Who may only look at this experiment does not see its links and codes.";
