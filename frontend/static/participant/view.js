// The document of the participant page: shows three targets, takes one choice, and measures when both happened.

const byId = (id) => document.getElementById(id);

/** Resolves with the time of the second animation frame: what was attached before it is on the screen by then. */
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

export class View {
  #page;
  #targets;
  #held = new Set();
  #onChoice = null;
  #onset = 0;
  #blurred = false;
  #sides = { left: byId("q-left"), right: byId("q-right") };

  constructor(page, targets) {
    this.#page = page;
    this.#targets = targets;
    document.documentElement.style.setProperty("--background", page.background);
    document.documentElement.style.setProperty("--stimulus", page.stimulus_size);
    document.documentElement.classList.toggle("dark", isDark(getComputedStyle(document.body).backgroundColor));
    byId("instructions").innerHTML = page.instructions; // cleaned by the server
    for (const [side, button] of Object.entries(this.#sides)) {
      button.addEventListener("click", (event) => this.#choose(side, event, event.pointerType || "mouse"));
    }
    document.addEventListener("keydown", (event) => this.#pressed(event));
    document.addEventListener("keyup", (event) => this.#held.delete(event.key));
    addEventListener("blur", () => {
      this.#blurred = true;
    });
  }

  /** Show a query and resolve with {side, winner, rt_ms, …} when a foot is chosen, or with null when it is skipped. */
  async show(query) {
    const elements = ["head", "left", "right"].map((place) => this.#element(query[place]));
    await Promise.all(elements.map(ready));
    byId("message").hidden = true;
    byId("trial").hidden = false;
    byId("trial").classList.remove("blank");
    [byId("q-head"), this.#sides.left, this.#sides.right].forEach((cell, place) => {
      cell.replaceChildren(elements[place]);
      cell.classList.remove("chosen");
    });
    this.#sides.left.setAttribute("aria-label", this.#name(query.left, "Left comparison"));
    this.#sides.right.setAttribute("aria-label", this.#name(query.right, "Right comparison"));
    this.#onset = await painted();
    this.#blurred = false;
    return new Promise((resolve) => {
      this.#onChoice = (choice) => {
        this.#onChoice = null;
        resolve(choice && { ...choice, winner: query[choice.side] });
      };
      byId("skip-button").onclick = () => this.#onChoice?.(null);
    });
  }

  /** Mark the choice, then leave the screen blank between two queries. */
  async blank() {
    byId("trial").classList.add("blank");
    await new Promise((resolve) => setTimeout(resolve, this.#page.blank_ms));
  }

  allowSkip() {
    byId("skip-button").hidden = false;
  }

  progress(given, limit) {
    byId("progress").hidden = limit <= 0;
    byId("progress").value = limit > 0 ? given / limit : 0;
    byId("num-queries").textContent = limit > 0 ? `${given} / ${limit}` : `${given}`;
  }

  participant(code) {
    byId("puid").textContent = code;
  }

  status(text) {
    if (byId("status").textContent !== text) byId("status").textContent = text;
  }

  /** Instead of a trial: paragraphs of text, and HTML that the server has cleaned. */
  message(paragraphs, html = "") {
    const section = byId("message");
    section.replaceChildren();
    if (html) {
      const part = document.createElement("div");
      part.innerHTML = html;
      section.append(part);
    }
    for (const text of paragraphs) {
      const part = document.createElement("p");
      part.textContent = text;
      section.append(part);
    }
    byId("trial").hidden = true;
    section.hidden = false;
    section.focus();
  }

  #pressed(event) {
    const side = ["left", "right"][this.#page.keys.indexOf(event.key)];
    const fresh = !event.repeat && !this.#held.has(event.key);
    this.#held.add(event.key);
    if (!side || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (fresh) this.#choose(side, event, "key");
  }

  #choose(side, event, input) {
    const rtMs = event.timeStamp - this.#onset;
    if (!this.#onChoice || rtMs < this.#page.min_rt_ms) return;
    this.#sides[side].classList.add("chosen");
    this.#onChoice({
      side,
      timing: {
        blur_during_trial: this.#blurred,
        input: event.detail === 0 && input !== "touch" ? "key" : input === "pen" ? "touch" : input,
        onset_client_ms: this.#onset,
        rt_ms: rtMs,
        viewport_h: innerHeight,
        viewport_w: innerWidth,
      },
    });
  }

  #name(index, neutral) {
    const target = this.#targets[index];
    return target.kind === "text" ? `${neutral}: ${target.text}` : target.alt ? `${neutral}: ${target.alt}` : neutral;
  }

  #element(index) {
    const target = this.#targets[index];
    const element = document.createElement({ audio: "audio", image: "img", video: "video" }[target.kind] ?? "span");
    if (target.kind === "text") element.textContent = target.text;
    else if (target.kind === "html") element.innerHTML = target.html; // cleaned by the server
    else {
      element.src = target.source;
      if (target.kind === "image") element.alt = target.alt;
      else element.setAttribute("controls", "");
      if (target.kind === "video") Object.assign(element, { autoplay: true, loop: true, muted: true, playsInline: true });
    }
    return element;
  }
}

/** Resolves when an element can be painted: pictures decoded, videos with their first frame. */
async function ready(element) {
  if (element instanceof HTMLImageElement) await element.decode().catch(() => {});
  if (element instanceof HTMLVideoElement && element.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) {
    await new Promise((resolve) => ["loadeddata", "error"].forEach((name) => element.addEventListener(name, resolve)));
  }
}

function isDark(colour) {
  const [red, green, blue] = (colour.match(/\d+(\.\d+)?/g) ?? [255, 255, 255]).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 110;
}
