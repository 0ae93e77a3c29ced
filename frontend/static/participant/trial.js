// Shows one trial: paints three targets together, accepts one choice, and measures both times.

import { Choosing } from "./choosing.js";

const byId = (id) => document.getElementById(id);
const SIDES = ["left", "right"];

/** Resolve with the time of the second animation frame, when everything attached before is visible. */
function waitForPaint() {
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
  #timer = 0;
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
      foot.addEventListener("click", (event) => this.#acceptChoice(this.#choosing.click(side, event.timeStamp, inputOf(event))), { signal });
    }
    document.addEventListener("keydown", (event) => this.#handleKey(event), { signal });
    document.addEventListener("keyup", (event) => this.#choosing.keyUp(event.key), { signal });
    addEventListener("blur", () => {
      this.#blurred = true;
      this.#choosing.forgetKeys();
    }, { signal });
    byId("skip-button").addEventListener("click", () => this.#finishWith({ skipped: true }), { signal });
    document.addEventListener("salmon:getquery", () => this.#finishWith({ skipped: true }), { signal });
    byId("finish-here").addEventListener("click", () => this.#finishWith({ stopped: true }), { signal });
  }

  /** Remove all listeners. */
  close() {
    this.#detach.abort();
    this.#choosing.end();
  }

  showButtons({ skip, stop }) {
    byId("skip-button").hidden = !skip;
    byId("finish-here").hidden = !stop;
  }

  /** Show a prepared query; resolves with its onset when all of it is painted. */
  async show(query) {
    this.#query = query;
    this.#blurred = false;
    this.#place(query);
    byId("message").hidden = true;
    this.#section.hidden = false;
    this.#section.classList.remove("blank", "fixation");
    byId("below").replaceChildren();
    const onset = await waitForPaint();
    for (const side of SIDES) this.#feet[side].classList.remove("disabled");
    this.#choosing.begin(onset);
    if (this.#page.max_trial_ms) this.#timer = setTimeout(() => this.#finishWith({ late: true }), this.#page.max_trial_ms);
    document.dispatchEvent(new CustomEvent("salmon:query", { detail: query }));
    return onset;
  }

  /** Resolve with the participant's decision: {winner, side, timing}, {skipped} or {stopped}; {late} when the time is up. */
  decision() {
    return new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /** End a trial without a decision of the participant. */
  interrupt() {
    this.#finishWith({ interrupted: true });
  }

  /** Pause between trials: the chosen foot keeps its border during the blank; then only the fixation cross is shown. */
  async gap() {
    this.#section.classList.add("blank");
    await pause(this.#page.blank_ms);
    for (const side of SIDES) this.#feet[side].classList.remove("chosen", "answersent");
    if (this.#page.fixation_ms > 0) {
      this.#section.classList.add("fixation");
      await pause(this.#page.fixation_ms);
    }
  }

  /** Show feedback below the feet, with a button to continue. */
  showFeedback(text) {
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

  /** @param {import("../types").QueryReply} query */
  #place(query) {
    this.#unheard = new Set();
    for (const [place, cell] of Object.entries({ head: byId("q-head"), ...this.#feet })) {
      const element = this.#stimuli.element(query[place], place, { copy: place !== "head" && query[place] === query.head });
      cell.replaceChildren(element, ...(element instanceof HTMLAudioElement ? [this.#strings.say(`${place}_name`)] : []));
      cell.classList.remove("chosen", "answersent");
      if (place !== "head") {
        cell.setAttribute("aria-label", this.#stimuli.name(query[place], place));
        cell.classList.add("disabled");
      }
      byId(`play-${place}`).replaceChildren(...this.#player(element, place), ...this.#enlarger(element, place));
    }
    this.#showUnheard();
  }

  /** Create the button that plays a sound or video; it is beside the foot, because buttons cannot be nested. */
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
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) element.play().catch(label); // without sound
    } else {
      this.#unheard.add(element);
      element.onplay = () => {
        for (const other of /** @type {NodeListOf<HTMLAudioElement>} */ (document.querySelectorAll("#trial audio"))) if (other !== element) other.pause();
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

  /** Create the button that shows a picture in the whole window: while it is pressed, or from one press of a key to the next. */
  #enlarger(element, place) {
    if (!this.#page.enlarge || !(element instanceof HTMLImageElement)) return [];
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "⤢";
    button.setAttribute("aria-label", `${this.#strings.say("enlarge")}: ${this.#strings.say(`${place}_name`)}`);
    const show = (shown) => {
      byId("enlarged").hidden = !shown;
      byId("enlarged").replaceChildren(...(shown ? [Object.assign(new Image(), { alt: element.alt, src: element.src })] : []));
      button.setAttribute("aria-pressed", String(shown));
    };
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      show(true);
    });
    for (const end of ["pointerup", "pointercancel", "blur"]) button.addEventListener(end, () => show(false));
    button.addEventListener("click", (event) => event.detail === 0 && show(byId("enlarged").hidden)); // by the keyboard
    button.addEventListener("keydown", (event) => event.key === "Escape" && show(false));
    show(false);
    return [button];
  }

  #showUnheard() {
    const waiting = this.#unheard.size > 0;
    for (const side of SIDES) this.#feet[side].setAttribute("aria-disabled", String(waiting));
    byId("listen").textContent = waiting ? this.#strings.say("listen_first") : "";
  }

  #handleKey(event) {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (typing || !this.keysOn || this.#section.hidden) return;
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    const choice = this.#choosing.keyDown(event.key, event.timeStamp, { modified, repeat: event.repeat });
    if (this.#choosing.sideOf(event.key) && !modified) event.preventDefault(); // arrow keys must not scroll
    this.#acceptChoice(choice);
  }

  #acceptChoice(choice) {
    if (!choice) return;
    if (this.#unheard.size > 0) {
      this.#choosing.begin(choice.onset_client_ms);
      return;
    }
    const { side, ...timing } = choice;
    this.#feet[side].classList.add("chosen", "answersent");
    for (const other of SIDES) this.#feet[other].classList.add("disabled");
    const measured = { ...timing, blur_during_trial: this.#blurred, viewport_h: innerHeight, viewport_w: innerWidth };
    this.#finishWith({ side, timing: measured, winner: this.#query[side] });
  }

  #finishWith(decision) {
    clearTimeout(this.#timer);
    this.#choosing.end();
    byId("enlarged").hidden = true;
    for (const element of /** @type {NodeListOf<HTMLMediaElement>} */ (document.querySelectorAll("#trial audio, #trial video"))) element.pause();
    const finish = this.#finish;
    this.#finish = null;
    finish?.(decision);
  }
}

function inputOf(event) {
  return { pen: "touch", touch: "touch" }[event.pointerType] ?? "mouse";
}
