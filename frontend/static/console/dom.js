// Creates elements; formats numbers, times and durations.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** @type {(selector: string, within?: ParentNode) => any} */
export const $ = (selector, within = document) => within.querySelector(selector);

export const data = () => JSON.parse(document.getElementById("data").textContent);

const grouped = new Intl.NumberFormat();
export const number = (value) => (value === null || value === undefined ? "–" : grouped.format(value));

const rounded = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
export const short = (value) => (value === null || value === undefined ? "–" : rounded.format(value));

/** Return a number with its noun: "1 row", "12 rows". */
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`;

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 950 ? `${Math.round(value)} ms` : duration(value);
}

export function duration(value) {
  const seconds = value / 1000;
  if (seconds < 90) return `${short(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  const hours = minutes / 60;
  return hours < 48 ? `${Math.round(hours)} h` : `${Math.round(hours / 24)} days`;
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Return a time in the reader's time zone, with UTC as its tooltip. */
export function time(ms) {
  const date = new Date(ms);
  return h("time", { datetime: date.toISOString(), title: utc(ms) }, day.format(date));
}

export const utc = (ms) => `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;

/** Format the times in the page. */
export function showTimes(within = document) {
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (within.querySelectorAll("time[data-ms]"))) {
    element.replaceWith(time(Number(element.dataset.ms)));
  }
}

/** Make buttons with data-copy copy that text. */
export function showCopies(within = document) {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (within.querySelectorAll("[data-copy]"))) {
    button.addEventListener("click", () => copy(button, button.dataset.copy));
  }
}

export async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying failed: select the text";
  }
  setTimeout(() => (button.textContent = before), 2000);
}

/** Save a file through the browser. */
export function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const LETTERS = 13;

/**
 * Return names that tell targets apart in little room: without their common beginning, and cut in the middle.
 * @param {string[]} names
 */
export function shortNames(names) {
  const [first = "", ...others] = names;
  let common = 0;
  while (common < first.length && others.every((name) => name[common] === first[common])) common += 1;
  const words = others.length ? first.slice(0, common).search(/[^\p{L}\p{N}]+[\p{L}\p{N}]*$/u) : -1;
  const begin = words < 0 ? 0 : words + first.slice(words).search(/[\p{L}\p{N}]|$/u);
  const kept = names.every((name) => name.length > begin) ? names.map((name) => name.slice(begin)) : names;
  return kept.map((name) => (name.length > LETTERS ? `${name.slice(0, 6)}…${name.slice(-6)}` : name));
}
