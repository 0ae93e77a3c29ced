// A plugin for jsPsych 8: each trial asks one query of an experiment on this server.

import { Choosing } from "../participant/choosing.js";

// The numbers of jsPsych's ParameterType, so that this file needs nothing of jsPsych's.
const TYPE = { BOOL: 0, FLOAT: 3, HTML_STRING: 8, INT: 2, KEYS: 6, OBJECT: 12, STRING: 1 };
const SIDES = ["left", "right"];

const waitForPaint = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));

export class jsPsychSalmon {
  static info = {
    data: {
      given: { type: TYPE.INT },
      head: { type: TYPE.INT },
      input: { type: TYPE.STRING },
      left: { type: TYPE.INT },
      participant: { type: TYPE.STRING },
      query: { type: TYPE.INT },
      response: { type: TYPE.STRING },
      right: { type: TYPE.INT },
      rt: { type: TYPE.FLOAT },
      winner: { type: TYPE.INT },
    },
    name: "salmon",
    parameters: {
      blank_duration: { default: null, type: TYPE.INT },
      keys: { array: true, default: ["ArrowLeft", "ArrowRight"], type: TYPE.KEYS },
      min_rt: { default: null, type: TYPE.INT },
      prompt: { default: null, type: TYPE.HTML_STRING },
      stimulus_size: { default: 240, type: TYPE.INT },
      study: { default: undefined, type: TYPE.OBJECT },
    },
    version: "1.0.0",
  };

  /**
   * Return the timeline that asks queries until the experiment has all answers of this participant.
   * @param {import("./salmon.js").Salmon} study
   * @param {Record<string, any>} parameters those of the plugin, and any of jsPsych's own
   */
  static timeline(study, parameters = {}) {
    const trial = { ...parameters, study: () => study, type: jsPsychSalmon };
    return { conditional_function: () => !study.finished, loop_function: () => !study.finished, timeline: [trial] };
  }

  /**
   * Ask one query. jsPsych calls this, and stores what it returns.
   * @param {HTMLElement} display
   * @param {any} trial
   * @param {() => void} [onLoad]
   */
  async trial(display, trial, onLoad = () => {}) {
    /** @type {import("./salmon.js").Salmon} */
    const study = trial.study;
    const screen = new Screen(display, { html: trial.prompt ?? study.page.instructions, size: trial.stimulus_size });
    const told = study.onStatus;
    study.onStatus = (sentence) => {
      screen.say(sentence);
      told(sentence);
    };
    try {
      const query = await study.next();
      if (!query) return { given: study.given, participant: study.participant };
      const minRtMs = trial.min_rt ?? study.page.min_rt_ms;
      const { side, ...timing } = await screen.ask(query, { keys: trial.keys, minRtMs, onLoad });
      study.answer(side, timing);
      await new Promise((resolve) => setTimeout(resolve, trial.blank_duration ?? study.page.blank_ms));
      const { head, left, right, trial: number } = query;
      const { given, page, participant } = study;
      if (page.max_queries > 0 && given >= page.max_queries) await study.next(); // saved, unless further answers are missing
      return { given, head, input: timing.input, left, participant, query: number, response: side, right, rt: timing.rt_ms, winner: query[side] };
    } finally {
      study.onStatus = told;
      display.replaceChildren();
    }
  }
}

/** The screen of one trial: the question, the head, and the feet below it. */
class Screen {
  #place = document.createElement("div");
  #feet = document.createElement("div");
  #status = document.createElement("p");
  #size;

  constructor(display, { html, size }) {
    const prompt = document.createElement("div");
    prompt.className = "salmon-prompt";
    prompt.innerHTML = html; // the experimenter's, or cleaned by the server
    this.#size = size;
    this.#place.className = "salmon-head";
    this.#place.style.marginBottom = "1em";
    this.#feet.className = "salmon-feet";
    Object.assign(this.#feet.style, { display: "flex", gap: "2em", justifyContent: "center" });
    this.#status.className = "salmon-status";
    this.#status.setAttribute("role", "status");
    display.replaceChildren(prompt, this.#place, this.#feet, this.#status);
  }

  /** Show a sentence below the feet. */
  say(sentence) {
    this.#status.textContent = sentence;
  }

  /** Show a query; resolves with the choice {side, rt_ms, onset_client_ms, input}. */
  async ask({ elements }, { keys, minRtMs, onLoad }) {
    const choosing = new Choosing({ keys, minRtMs });
    const listening = new AbortController();
    const { signal } = listening;
    this.#place.replaceChildren(this.#fit(elements.head));
    const chosen = new Promise((resolve) => {
      const accept = (choice) => choice && resolve(choice);
      for (const side of SIDES) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = `jspsych-btn salmon-foot salmon-${side}`;
        button.addEventListener("pointerdown", (event) => choosing.pointerDown(side, event.timeStamp), { signal });
        button.addEventListener("click", (event) => accept(choosing.click(side, event.timeStamp, inputOf(event))), { signal });
        this.#feet.append(this.#foot(button, elements[side], side));
      }
      document.addEventListener("keydown", (event) => {
        const modified = event.altKey || event.ctrlKey || event.metaKey;
        if (choosing.sideOf(event.key) && !modified) event.preventDefault(); // arrow keys must not scroll
        accept(choosing.keyDown(event.key, event.timeStamp, { modified, repeat: event.repeat }));
      }, { signal });
      document.addEventListener("keyup", (event) => choosing.keyUp(event.key), { signal });
    });
    onLoad();
    choosing.begin(await waitForPaint());
    const choice = await chosen;
    listening.abort();
    for (const button of this.#feet.querySelectorAll("button")) button.disabled = true;
    return choice;
  }

  /** Return a foot: its button shows it, or stands below it where it has controls of its own. */
  #foot(button, element, side) {
    const place = document.createElement("div");
    if (element instanceof HTMLMediaElement) {
      button.textContent = side === "left" ? "←" : "→";
      place.append(this.#fit(element), document.createElement("br"), button);
    } else {
      button.append(this.#fit(element));
      place.append(button);
    }
    return place;
  }

  #fit(element) {
    Object.assign(element.style, { height: "auto", maxHeight: `${this.#size}px`, maxWidth: `${this.#size}px`, width: "auto" });
    if (element instanceof HTMLMediaElement) element.controls = true;
    return element;
  }
}

function inputOf(event) {
  return { pen: "touch", touch: "touch" }[event.pointerType] ?? "mouse";
}
