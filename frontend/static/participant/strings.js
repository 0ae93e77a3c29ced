// The page's own texts, by name.

export class Strings {
  #texts;

  constructor(texts) {
    this.#texts = texts;
  }

  /** Return a text with its fields ({count}) filled in. */
  say = (name, values = {}) => (this.#texts[name] ?? "").replace(/\{(\w+)\}/g, (field, key) => values[key] ?? field);

  /** Return a sentence for a failed request in the page's language, or the server's sentence if there is none. */
  failure({ code, message = "", hint = "" }) {
    const known = this.say(code === "offline" ? "offline" : `error_${code}`);
    return known || [this.say("server_trouble"), message, hint].filter(Boolean).join(" ");
  }
}

/** Return how a key is labelled. */
export function keyLabel(key) {
  return { ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑" }[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}
