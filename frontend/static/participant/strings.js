// The texts that the page says by itself, by their names.

export class Strings {
  #texts;

  constructor(texts) {
    this.#texts = texts;
  }

  /** The text of a name, with its fields ({count}) filled in. */
  say(name, values = {}) {
    return (this.#texts[name] ?? "").replace(/\{(\w+)\}/g, (field, key) => values[key] ?? field);
  }

  /** A sentence for a request that failed: the server's where it had one, else ours. */
  failure({ code, message, hint }) {
    if (code === "offline" || code === "server") return this.say(code === "offline" ? "offline" : "server_trouble");
    return [message, hint].filter(Boolean).join(" ");
  }
}

/** A key as people know it. */
export function keyLabel(key) {
  return { ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑" }[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}
