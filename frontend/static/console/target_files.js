// The files of the ZIP beside the text: pictures, names, sizes, what is odd about them, and which are pictures of texts.

import { count, h, number } from "./dom.js";

/** Odd files that are named in one line. */
const NAMED = 5;

const size = ({ width, height, bytes }) =>
  [width ? `${number(width)} × ${number(height)}` : "", bytes ? `${number(Math.ceil(bytes / 1000))} kB` : ""].filter(Boolean).join(" · ");

function picture(file) {
  if (file.kind === "image") return h("img", { src: file.media, alt: "", loading: "lazy" });
  if (file.kind === "video") return h("video", { src: file.media, muted: true, preload: "metadata", "aria-label": file.name });
  if (file.kind === "audio") return h("audio", { src: file.media, controls: true, preload: "none", "aria-label": file.name });
  return h("span", { class: "text" }, file.name);
}

function card(file, label, remove) {
  const button = remove
    ? h("button", { type: "button", class: "plain", "aria-label": `Remove ${file.name}`, onclick: () => remove(file.name) }, "✕")
    : null;
  return h(
    "li",
    { class: file.odd?.length ? "file odd" : "file" },
    h("div", { class: "frame" }, picture(file), button),
    h("p", { class: "name" }, h("b", {}, label), ` ${file.name}`),
    h("p", { class: "quiet" }, size(file)),
    ...(file.odd ?? []).map((sentence) => h("p", { class: "warning" }, sentence)),
  );
}

/** @param {import("../types").DraftFiles} files */
function oddNames({ targets, odd }) {
  const names = targets.filter((file) => file.odd.length).map(({ name }) => name).slice(0, NAMED);
  return odd > names.length ? `${names.join(", ")}, …` : names.join(", ");
}

/**
 * Draw what the checker found in the ZIP, or where targets come from without one.
 * @param {HTMLElement} place
 * @param {import("../types").DraftFiles} files
 * @param {{remove: ((name: string) => void) | null}} actions
 */
export function drawFiles(place, files, { remove }) {
  if (!files) {
    place.replaceChildren(h("p", { class: "quiet" }, "No files. Drop pictures, sounds, videos or a ZIP of them on this page, or list targets in the text."));
    return;
  }
  const more = files.count - files.targets.length;
  const own = files.zip ? remove : null;
  place.replaceChildren(
    h(
      "p",
      { class: "row" },
      h("b", {}, `${count(files.count, "target")}${files.zip ? ` from ${files.zip}` : ""}`),
      files.bytes ? h("span", { class: "quiet" }, `${number(Math.ceil(files.bytes / 1000))} kB`) : null,
      files.odd ? h("span", { class: "warning" }, `${count(files.odd, "odd one")}: ${oddNames(files)}`) : h("span", { class: "quiet" }, files.count ? "None looks odd." : ""),
      files.zip ? h("button", { type: "button", class: "plain", onclick: () => remove("") }, "Remove all") : null,
    ),
    h("ul", { class: "files-grid" }, ...files.targets.map((file) => card(file, `${file.index}`, own))),
    more > 0 ? h("p", { class: "quiet" }, `${number(more)} more.`) : "",
    files.pictures.length ? h("h3", {}, "Pictures of texts, not targets") : "",
    files.pictures.length
      ? h("ul", { class: "files-grid" }, ...files.pictures.map((file) => card({ ...file, kind: "image" }, "", own)))
      : "",
  );
}
