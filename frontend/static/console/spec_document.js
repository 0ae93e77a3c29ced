// Reads and changes single values of an experiment's file and leaves every other character as it is: comments, keys that
// nobody knows, and how it is written.

import {
  isMap,
  isScalar,
  isSeq,
  parseDocument,
  stringify,
} from "../vendor/codemirror-6.43.15.esm.min.js";

const WRITING = { lineWidth: 0, flowCollectionPadding: false };

/** Return a file as a document, or null where it cannot be read as keys with values. */
export function read(text) {
  const document = parseDocument(text, { uniqueKeys: true });
  if (document.errors.length > 0) return null;
  return document.contents === null || isMap(document.contents) ? document : null;
}

/** Return the value at a path as plain data, or undefined. */
export function valueAt(document, path) {
  const node = document.getIn(path, true);
  return node?.toJSON ? node.toJSON() : undefined;
}

/** Return the text with another value at a path; without the key, or the item, where it is undefined. Null if it cannot be read. */
export function withValue(text, path, value) {
  const document = read(text);
  if (!document) return null;
  const node = document.getIn(path, true);
  const above = path.length > 1 ? document.getIn(path.slice(0, -1), true) : document.contents;
  if (value === undefined) return document.hasIn(path) ? without(text, document, path, above) : text;
  if (above?.flow) return isScalar(node) && !isObject(value) ? inPlace(text, node, value) : anew(text, document, path, value);
  if (isScalar(node) && isOneLine(value) && !node.type?.startsWith("BLOCK")) return inPlace(text, node, value);
  if (document.hasIn(path) && isMap(above)) return replaced(text, above, path.at(-1), value);
  if (path.length === 1) return `${text}${text && !text.endsWith("\n") ? "\n" : ""}${stringify({ [path[0]]: value }, WRITING)}`;
  if (isMap(above) || isSeq(above)) return above.items.length ? inserted(text, above, path.at(-1), value) : anew(text, document, path, value);
  return withValue(text, path.slice(0, -1), typeof path.at(-1) === "number" ? [value] : { [path.at(-1)]: value });
}

const isObject = (value) => typeof value === "object" && value !== null;
const isOneLine = (value) => !isObject(value) && !String(value).includes("\n");

/** Return the column of a place, from 0. */
const columnOf = (text, place) => place - (text.lastIndexOf("\n", place - 1) + 1);

/** Return where the last line ends that holds something of a text up to a place; comments behind it belong to it. */
function endOfLine(text, from, to) {
  const last = from + text.slice(from, to).trimEnd().length;
  const end = text.indexOf("\n", last);
  return end === -1 ? text.length : end;
}

const indented = (written, column) => written.trimEnd().replaceAll(/\n(?=[^\n])/g, `\n${" ".repeat(column)}`);
const pairText = (key, value, column) => indented(stringify({ [key]: value }, WRITING), column);

function inPlace(text, node, value) {
  if (node.value === value) return text;
  const options = node.type?.startsWith("QUOTE") && typeof value === "string" ? { ...WRITING, defaultStringType: node.type } : WRITING;
  const [from, to] = node.range;
  return text.slice(0, from) + (text[from - 1] === ":" ? " " : "") + stringify(value, options).trimEnd() + text.slice(to);
}

/** Return the text with the pair of a key written anew; a comment behind a value of one line stays. */
function replaced(text, above, key, value) {
  const pair = above.items.find((item) => String(item.key) === String(key));
  const from = pair.key.range[0];
  const end = pair.value?.range?.[1] ?? pair.key.range[1] + 1;
  const written = pairText(key, value, columnOf(text, from));
  const to = from + text.slice(from, end).trimEnd().length;
  const rest = text.slice(to, endOfLine(text, to, to));
  const comment = text.slice(from, to).includes("\n") ? "" : (/^\s*#.*$/.exec(rest)?.[0] ?? "");
  const [first, ...more] = written.split("\n");
  return text.slice(0, from) + [first + comment, ...more].join("\n") + text.slice(to + comment.length);
}

/** Return the text with another key or item at the end of a mapping or list. */
function inserted(text, above, key, value) {
  const last = above.items.at(-1);
  const begun = isMap(above) ? last.key.range[0] : last.range[0];
  const end = isMap(above) ? (last.value?.range?.[1] ?? last.key.range[1]) : last.range[1];
  const place = endOfLine(text, begun, Math.max(end, begun));
  const column = isMap(above) ? columnOf(text, above.items[0].key.range[0]) : columnOf(text, above.range[0]);
  const written = isMap(above) ? pairText(key, value, column) : indented(stringify([value], WRITING), column);
  return `${text.slice(0, place)}\n${" ".repeat(column)}${written}${text.slice(place)}`;
}

/** Return the text without a key or an item: whole lines, with the comments behind their values. */
function without(text, document, path, above) {
  const key = path.at(-1);
  if (path.length > 1 && above.items.length === 1) return without(text, document, path.slice(0, -1), document.getIn(path.slice(0, -2), true) ?? document.contents);
  const item = isMap(above) ? above.items.find((pair) => String(pair.key) === String(key)) : above.items[key];
  const from = isMap(above) ? item.key.range[0] : item.range[0];
  const end = isMap(above) ? (item.value?.range?.[1] ?? item.key.range[1]) : item.range[1];
  const start = text.lastIndexOf("\n", from - 1) + 1;
  const alone = isMap(above) ? /^\s*$/ : /^\s*- *$/;
  if (above.flow || !alone.test(text.slice(start, from))) return anew(text, document, path, undefined);
  const stop = endOfLine(text, from, Math.max(end, from));
  return text.slice(0, start) + text.slice(Math.min(stop + 1, text.length));
}

/** Return the text with the whole of a top-level key written anew by the library, where its own place cannot be told. */
function anew(text, document, path, value) {
  const pair = document.contents.items.find((item) => String(item.key) === String(path[0]));
  const range = pair && !document.contents.flow ? [pair.key.range[0], pair.value?.range?.[1] ?? pair.key.range[1]] : null;
  if (value === undefined) document.deleteIn(path);
  else document.setIn(path, document.createNode(value));
  if (!range) return document.toString(WRITING);
  const to = range[0] + text.slice(range[0], range[1]).trimEnd().length;
  return text.slice(0, range[0]) + pairText(path[0], document.get(path[0], true), 0) + text.slice(to);
}
