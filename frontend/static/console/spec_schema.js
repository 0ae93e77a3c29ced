// What the JSON schema of an experiment's file says about a place in it. Knows lines of YAML, and nothing of the page.

const KEY = /^(\s*)((?:- +)*)(?:"([^"]+)"|'([^']+)'|([^\s:#,[\]{}"'][^:#]*?))\s*:(?=\s|$)/;
const VALUE = /^\s*(?:- +)*["']?([\w.-]+)["']?\s*:\s+(\S*)$/;
const BEGUN_KEY = /^\s*(?:- +)*([\w.-]*)$/;

const keyOf = (match) => match[3] ?? match[4] ?? match[5];
const indentOf = (line) => line.length - line.trimStart().length;

/** Return the keys above a place of block YAML, outermost first; `*` stands for an item of a list. */
export function pathAt(lines, place, column = Infinity) {
  const path = [];
  const dashes = /^\s*((?:- +)*)/.exec(lines[place])[0];
  let indent = lines[place].trim() ? Math.min(dashes.length, column) : Math.min(column, lines[place].length);
  for (let at = dashes.lastIndexOf("-"); at >= 0; at = at > 0 ? dashes.lastIndexOf("-", at - 1) : -1) {
    path.unshift("*");
    indent = at;
  }
  let inItem = dashes.includes("-");
  for (let line = place - 1; line >= 0 && (indent > 0 || inItem); line -= 1) {
    const text = lines[line];
    if (!text.trim() || text.trimStart().startsWith("#")) continue;
    const match = KEY.exec(text);
    const own = indentOf(text);
    const start = match ? match[1].length + match[2].length : own;
    if (match && !match[2] && (start < indent || (inItem && start <= indent))) {
      path.unshift(keyOf(match));
      indent = start;
      inItem = false;
    } else if (text.trimStart().startsWith("- ") && own < indent) {
      if (match && start < indent) path.unshift(keyOf(match));
      path.unshift("*");
      indent = own;
      inItem = true;
    }
  }
  return path;
}

/** Return the part of the schema that describes a path, or null where there is none. */
export function schemaAt(schema, path) {
  let part = schema;
  for (const key of path) {
    if (key === "*") part = part?.items;
    else part = part?.properties?.[key] ?? (typeof part?.additionalProperties === "object" ? part.additionalProperties : null);
    if (!part) return null;
  }
  return part;
}

/** Return the type of a value that is meant, of all that may be written. */
export const typeOf = (part) => [part?.type].flat()[0];

/** Return what may be written at the end of a line: {from, options: [{label, detail, info, apply}]}, or null. */
export function completionsAt(schema, lines, place, column) {
  const before = lines[place].slice(0, column);
  if (before.trimStart().startsWith("#")) return null;
  const value = VALUE.exec(before);
  if (value) {
    const described = schemaAt(schema, [...pathAt(lines, place, column), value[1]]);
    const choices = described?.enum ?? (typeOf(described) === "boolean" ? ["true", "false"] : null);
    if (!choices) return null;
    return {
      from: column - value[2].length,
      options: choices.map((label, order) => ({ label: String(label), detail: String(label) === String(described.default) ? "default" : "", boost: -order })),
    };
  }
  const begun = BEGUN_KEY.exec(before);
  if (!begun) return null;
  const path = pathAt(lines, place, column - begun[1].length);
  const within = schemaAt(schema, path);
  if (!within?.properties) return null;
  return {
    from: column - begun[1].length,
    options: Object.entries(within.properties).map(([label, part], order) => ({
      label,
      boost: -order,
      detail: kindOf(part),
      info: part.description ?? "",
      apply: label + ending(part, column - begun[1].length),
    })),
  };
}

/** Return what the key at a place means: {key, from, to, kind, text}, or null. */
export function meaningAt(schema, lines, place, column) {
  const match = KEY.exec(lines[place]);
  if (!match) return null;
  const from = match[1].length + match[2].length;
  const key = keyOf(match);
  if (column < from || column > from + key.length) return null;
  const described = schemaAt(schema, [...pathAt(lines, place), key]);
  return described ? { key, from, to: from + key.length, kind: kindOf(described), text: described.description ?? "" } : null;
}

function ending(part, indent) {
  if (typeOf(part) === "object") return `:\n${" ".repeat(indent + 2)}`;
  return typeOf(part) === "array" && typeOf(part.items) === "object" ? `:\n${" ".repeat(indent + 2)}- ` : ": ";
}

function kindOf(part) {
  const kind = part.enum ? part.enum.join(", ") : ({ object: "keys", array: "list", boolean: "true or false", integer: "whole number", string: "text", number: "number" }[typeOf(part)] ?? "");
  return "default" in part && !part.enum ? `${kind}, default ${JSON.stringify(part.default)}` : kind;
}
