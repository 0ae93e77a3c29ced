// The document of one trial: three targets are shown together, one choice is taken, and both moments are measured.

import { Choosing } from "./choosing.js";

const byId = (id) => document.getElementById(id);
const SIDES = ["left", "right"];

/** Resolves with the time of the second animation frame: what was attached before it is on the screen by then. */
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

const pause = (ms) => (ms > 0 ? new Promise((resolve) => setTimeout(resolve, ms)) : undefined);

export class Trial {
  #page;
  #stimuli;
  #strings;
  #choosing;
  #feet = { left: byId("q-left"), right: byId("q-right") };
  #section = byId("trial");
  #detach = new AbortController();
  #finish = null;
  #blurred = false;
  #unheard = new Set();
  #query = null;
  keysOn = true;

  constructor(page, stimuli, strings) {
    this.#page = page;
    this.#stimuli = stimuli;
    this.#strings = strings;
    this.#choosing = new Choosing({ keys: page.keys, minRtMs: page.min_rt_ms });
    const { signal } = this.#detach;
    byId("instructions").innerHTML = page.instructions; // cleaned by the server
    for (const side of SIDES) {
      const foot = this.#feet[side];
      foot.addEventListener("pointerdown", (event) => this.#choosing.pointerDown(side, event.timeStamp), { signal });
      foot.addEventListener("click", (event) => this.#taken(this.#choosing.click(side, event.timeStamp, inputOf(event))), { signal });
    }
    document.addEventListener("keydown", (event) => this.#pressed(event), { signal });
    document.addEventListener("keyup", (event) => this.#choosing.keyUp(event.key), { signal });
    addEventListener("blur", () => {
      this.#blurred = true;
      this.#choosing.forgetKeys();
    }, { signal });
    byId("skip-button").addEventListener("click", () => this.#leave({ skipped: true }), { signal });
    document.addEventListener("salmon:getquery", () => this.#leave({ skipped: true }), { signal });
    byId("finish-here").addEventListener("click", () => this.#leave({ stopped: true }), { signal });
  }

  /** Take away everything that was attached. */
  close() {
    this.#detach.abort();
    this.#choosing.end();
  }

  allow({ skip, stop }) {
    byId("skip-button").hidden = !skip;
    byId("finish-here").hidden = !stop;
  }

  /** Put a prepared query on the screen; resolves with its onset, when all of it is painted. */
  async show(query) {
    this.#query = query;
    this.#blurred = false;
    this.#place(query);
    byId("message").hidden = true;
    this.#section.hidden = false;
    this.#section.classList.remove("blank", "fixation");
    byId("below").replaceChildren();
    const onset = await painted();
    for (const side of SIDES) this.#feet[side].classList.remove("disabled");
    this.#choosing.begin(onset);
    document.dispatchEvent(new CustomEvent("salmon:query", { detail: query }));
    return onset;
  }

  /** Resolves with {winner, side, timing}, {skipped} or {stopped}, when the participant has done one of these. */
  decision() {
    return new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /** End a trial from outside, as if nothing had been shown. */
  interrupt() {
    this.#leave({ interrupted: true });
  }

  /** Between two trials: the chosen foot keeps its border for the blank, then the fixation cross stands alone. */
  async gap() {
    this.#section.classList.add("blank");
    await pause(this.#page.blank_ms);
    for (const side of SIDES) this.#feet[side].classList.remove("chosen", "answersent");
    if (this.#page.fixation_ms > 0) {
      this.#section.classList.add("fixation");
      await pause(this.#page.fixation_ms);
    }
  }

  /** A sentence under the feet and a button that goes on: the feedback of the practice. */
  comment(text) {
    const sentence = document.createElement("p");
    sentence.textContent = text;
    sentence.setAttribute("role", "status");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = this.#strings.say("continue");
    byId("below").replaceChildren(sentence, button);
    button.focus();
    return new Promise((resolve) => button.addEventListener("click", resolve, { once: true }));
  }

  #place(query) {
    this.#unheard = new Set();
    for (const [place, cell] of [["head", byId("q-head")], ...Object.entries(this.#feet)]) {
      const element = this.#stimuli.element(query[place], place);
      cell.replaceChildren(element, ...(element instanceof HTMLAudioElement ? [this.#strings.say(`${place}_name`)] : []));
      cell.classList.remove("chosen", "answersent");
      if (place !== "head") {
        cell.setAttribute("aria-label", this.#stimuli.name(query[place], place));
        cell.classList.add("disabled");
      }
      byId(`play-${place}`).replaceChildren(...this.#player(element, place));
    }
    this.#showUnheard();
  }

  /** The button that plays a sound or a film; it stands beside the foot, because a button cannot hold another. */
  #player(element, place) {
    if (!(element instanceof HTMLMediaElement)) return [];
    const button = document.createElement("button");
    button.type = "button";
    const label = () => {
      const playing = !element.paused;
      button.textContent = playing ? "❚❚" : "▶";
      button.setAttribute("aria-label", `${this.#strings.say(playing ? "pause" : "play")}: ${this.#strings.say(`${place}_name`)}`);
    };
    button.addEventListener("click", () => (element.paused ? element.play() : element.pause()));
    Object.assign(element, { onended: null, onpause: label, onplay: label });
    element.currentTime = 0;
    if (element instanceof HTMLVideoElement) {
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) element.play().catch(label); // muted: nobody is startled
    } else {
      this.#unheard.add(element);
      element.onplay = () => {
        for (const other of document.querySelectorAll("#trial audio")) if (other !== element) other.pause();
        label();
      };
      element.onended = () => {
        this.#unheard.delete(element);
        label();
        this.#showUnheard();
      };
    }
    label();
    return [button];
  }

  #showUnheard() {
    const waiting = this.#unheard.size > 0;
    for (const side of SIDES) this.#feet[side].setAttribute("aria-disabled", String(waiting));
    byId("listen").textContent = waiting ? this.#strings.say("listen_first") : "";
  }

  #pressed(event) {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (typing || !this.keysOn || this.#section.hidden) return;
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    const choice = this.#choosing.keyDown(event.key, event.timeStamp, { modified, repeat: event.repeat });
    if (this.#choosing.sideOf(event.key) && !modified) event.preventDefault(); // arrows do not scroll the page away
    this.#taken(choice);
  }

  #taken(choice) {
    if (!choice) return;
    if (this.#unheard.size > 0) {
      this.#choosing.begin(choice.onset_client_ms);
      return;
    }
    const { side, ...timing } = choice;
    this.#feet[side].classList.add("chosen", "answersent");
    for (const other of SIDES) this.#feet[other].classList.add("disabled");
    const measured = { ...timing, blur_during_trial: this.#blurred, viewport_h: innerHeight, viewport_w: innerWidth };
    this.#leave({ side, timing: measured, winner: this.#query[side] });
  }

  #leave(decision) {
    this.#choosing.end();
    for (const element of document.querySelectorAll("#trial audio, #trial video")) element.pause();
    const finish = this.#finish;
    this.#finish = null;
    finish?.(decision);
  }
}

function inputOf(event) {
  return { pen: "touch", touch: "touch" }[event.pointerType] ?? "mouse";
}
