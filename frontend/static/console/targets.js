// The targets page: all targets with their warnings.

import { $, copy, count, data, h, number, showCopies } from "./dom.js";
import { Table } from "./table.js";

showCopies();
/** @type {import("../types").TargetsData} */
const { slug, targets } = data();

/** @typedef {import("../types").TargetRow} Target */
/** @type {(target: Target) => HTMLElement} */
const picture = (target) => {
  if (target.kind === "image") return h("img", { src: target.media, alt: target.alt, loading: "lazy", class: "thumb" });
  if (target.kind === "video") return h("video", { src: target.media, muted: true, controls: true, preload: "metadata", class: "thumb", "aria-label": target.name });
  if (target.kind === "audio") return h("audio", { src: target.media, controls: true, preload: "none", "aria-label": target.name });
  if (target.kind === "text") return h("span", { class: "thumb text" }, target.html);
  // The experimenter's HTML is shown as participants see it, in a sandboxed frame.
  return h("iframe", { class: "thumb", sandbox: "", srcdoc: `<body style="margin:0;display:grid;place-items:center;min-height:100vh">${target.html}`, title: `Target ${target.index}`, loading: "lazy" });
};

/** @type {(target: Target) => string} */
const size = (target) => [
  target.width ? `${number(target.width)} × ${number(target.height)}` : null,
  target.bytes ? `${number(Math.ceil(target.bytes / 1000))} kB` : null,
].filter(Boolean).join(" · ");

/** @type {(target: Target) => boolean} */
const lacksAlt = (target) => target.kind === "image" && !target.alt;

const cards = targets.map((target) =>
  h(
    "li",
    { class: target.odd.length ? "target odd" : "target" },
    h("div", { class: "frame" }, picture(target)),
    h("p", {}, h("b", {}, `${target.index}`), ` ${target.name}`),
    h("p", { class: "quiet" }, [size(target), count(target.head + target.foot, "answer")].filter(Boolean).join(" · ")),
    target.sha256 ? h("p", { class: "quiet hash", title: target.sha256 }, `SHA-256 ${target.sha256.slice(0, 12)}…`) : null,
    ...target.odd.map((sentence) => h("p", { class: "warning" }, sentence)),
  ),
);
$("#grid").append(...cards);

const odd = targets.filter((target) => target.odd.length).length;
const withoutAlt = targets.filter(lacksAlt).length;
$("#summary").textContent = [
  `${count(targets.length, "target")}.`,
  odd ? `Targets with warnings: ${number(odd)}.` : "No warnings.",
  withoutAlt ? `Pictures without alternative text: ${number(withoutAlt)}.` : "",
].join(" ");

function filter() {
  const words = $("#find").value.toLowerCase();
  targets.forEach((target, place) => {
    const fits = `${target.index} ${target.name}`.toLowerCase().includes(words);
    cards[place].hidden = !fits || ($("#only-odd").checked && !target.odd.length) || ($("#only-silent").checked && !lacksAlt(target));
  });
}
for (const id of ["find", "only-odd", "only-silent"]) $(`#${id}`).addEventListener("input", filter);

/** @type {Table<import("../types").TargetRow>} */
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
    { name: "odd", label: "Warnings", value: (row) => row.odd.join(" ") },
  ],
  { name: `${slug}-targets`, label: "Targets", key: (row) => row.index },
);
$("#table").append(table.element);
table.show(targets);

const pictures = targets.filter(({ kind }) => kind === "image");
$("#alt").textContent = pictures.length
  ? ["page:", "  alt:", ...pictures.map(({ name, alt }) => `    ${JSON.stringify(name)}: ${JSON.stringify(alt)}`)].join("\n")
  : "There are no pictures, so no alternative texts are needed.";
$("#copy-alt").addEventListener("click", (event) => copy(event.target, $("#alt").textContent));
