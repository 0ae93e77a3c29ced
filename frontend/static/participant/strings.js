// The texts that the page says by itself, by their names.

export class Strings {
  #texts;

  constructor(texts) {
    this.#texts = texts;
  }

  /** The text of a name, with its fields ({count}) filled in. */
  say = (name, values = {}) => (this.#texts[name] ?? "").replace(/\{(\w+)\}/g, (field, key) => values[key] ?? field);

  /** A sentence for a request that failed: ours, in the page's language; the server's where it has one that we have not. */
  failure({ code, message = "", hint = "" }) {
    const known = this.say(code === "offline" ? "offline" : `error_${code}`);
    return known || [this.say("server_trouble"), message, hint].filter(Boolean).join(" ");
  }
}

/** A key as people know it. */
export function keyLabel(key) {
  return { ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑" }[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}
