// All targets, with what looks odd about them.

import { $, copy, data, h, number, showCopies } from "./dom.js";
import { Table } from "./table.js";

showCopies();
const { slug, targets } = data();

const picture = (target) => {
  if (target.kind === "image") return h("img", { src: target.media, alt: target.alt, loading: "lazy", class: "thumb" });
  if (target.kind === "video") return h("video", { src: target.media, muted: true, controls: true, preload: "metadata", class: "thumb", "aria-label": target.name });
  if (target.kind === "audio") return h("audio", { src: target.media, controls: true, preload: "none", "aria-label": target.name });
  if (target.kind === "text") return h("span", { class: "thumb text" }, target.html);
  // HTML of the experimenter is shown as a participant sees it, in a frame without any rights.
  return h("iframe", { class: "thumb", sandbox: "", srcdoc: `<body style="margin:0;display:grid;place-items:center;min-height:100vh">${target.html}`, title: `Target ${target.index}`, loading: "lazy" });
};

const size = (target) => [
  target.width ? `${number(target.width)} × ${number(target.height)}` : null,
  target.bytes ? `${number(Math.ceil(target.bytes / 1000))} kB` : null,
].filter(Boolean).join(" · ");

const silent = (target) => target.kind === "image" && !target.alt;

const cards = targets.map((target) =>
  h(
    "li",
    { class: target.odd.length ? "target odd" : "target" },
    h("div", { class: "frame" }, picture(target)),
    h("p", {}, h("b", {}, `${target.index}`), ` ${target.name}`),
    h("p", { class: "quiet" }, [size(target), `${number(target.head + target.foot)} answers`].filter(Boolean).join(" · ")),
    target.sha256 ? h("p", { class: "quiet hash", title: target.sha256 }, `SHA-256 ${target.sha256.slice(0, 12)}…`) : null,
    ...target.odd.map((sentence) => h("p", { class: "warning" }, sentence)),
  ),
);
$("#grid").append(...cards);

const odd = targets.filter((target) => target.odd.length).length;
const quiet = targets.filter(silent).length;
$("#summary").textContent = [
  `${number(targets.length)} targets.`,
  odd ? `${number(odd)} look odd.` : "None looks odd.",
  quiet ? `${number(quiet)} pictures have no alternative text.` : "",
].join(" ");

function filter() {
  const words = $("#find").value.toLowerCase();
  targets.forEach((target, place) => {
    const fits = `${target.index} ${target.name}`.toLowerCase().includes(words);
    cards[place].hidden = !fits || ($("#only-odd").checked && !target.odd.length) || ($("#only-silent").checked && !silent(target));
  });
}
for (const id of ["find", "only-odd", "only-silent"]) $(`#${id}`).addEventListener("input", filter);

const table = new Table(
  [
    { name: "index", label: "Index", number: true, value: (row) => row.index },
    { name: "name", label: "Name", value: (row) => row.name },
    { name: "kind", label: "Kind", value: (row) => row.kind },
    { name: "width", label: "Width", number: true, value: (row) => row.width || null },
    { name: "height", label: "Height", number: true, value: (row) => row.height || null },
    { name: "bytes", label: "Bytes", number: true, value: (row) => row.bytes || null, show: (row) => (row.bytes ? number(row.bytes) : "") },
    { name: "sha256", label: "SHA-256", value: (row) => row.sha256, show: (row) => row.sha256.slice(0, 12) },
    { name: "alt", label: "Alternative text", value: (row) => row.alt },
    { name: "head", label: "As head", number: true, value: (row) => row.head },
    { name: "foot", label: "As foot", number: true, value: (row) => row.foot },
    { name: "won", label: "Won", number: true, value: (row) => row.won },
    { name: "odd", label: "What looks odd", value: (row) => row.odd.join(" ") },
  ],
  { name: `${slug}-targets`, label: "Targets", key: (row) => row.index },
);
$("#table").append(table.element);
table.show(targets);

const pictures = targets.filter(({ kind }) => kind === "image");
$("#alt").textContent = pictures.length
  ? ["page:", "  alt:", ...pictures.map(({ name, alt }) => `    ${JSON.stringify(name)}: ${JSON.stringify(alt)}`)].join("\n")
  : "There are no pictures: texts speak for themselves.";
$("#copy-alt").addEventListener("click", (event) => copy(event.target, $("#alt").textContent));
