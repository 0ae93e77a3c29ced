// Thresholds that an experimenter tries out: who is beyond them follows the sliders at once. Nothing is decided here.

import { count, h, milliseconds, number, percent } from "./dom.js";

/** @typedef {import("../types").ParticipantRow} Row */

/**
 * One slider: the figure that it compares, its positions from off to strict, and how a position is said.
 * @typedef {{ name: keyof import("../types").Figures, label: string, positions: number[], isBeyond: (value: number, limit: number) => boolean, say: (limit: number) => string }} Slider
 */

const below = (value, limit) => value < limit;
const above = (value, limit) => value > limit;

/** @type {Slider[]} */
export const SLIDERS = [
  { name: "careless_p", label: "Evidence", positions: [0.2, 0.1, 0.04, 0.02, 0.01, 0.004, 0.001, 0.0001, 0.00001], isBeyond: below, say: (limit) => `rarer than 1 in ${number(Math.round(1 / limit))}` },
  { name: "fit_accuracy", label: "Fit", positions: [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9], isBeyond: below, say: (limit) => `below ${percent(limit)}` },
  { name: "catch_accuracy", label: "Catch trials", positions: [0.5, 0.6, 0.7, 0.8, 0.9, 1], isBeyond: below, say: (limit) => `below ${percent(limit)}` },
  { name: "agreement", label: "Agreement", positions: [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9], isBeyond: below, say: (limit) => `below ${percent(limit)}` },
  { name: "repeat_consistency", label: "Consistency", positions: [0.5, 0.6, 0.7, 0.8, 0.9, 1], isBeyond: below, say: (limit) => `below ${percent(limit)}` },
  { name: "geometric_mean_rt_ms", label: "Response time", positions: [200, 300, 400, 500, 700, 1000, 1500], isBeyond: below, say: (limit) => `below ${milliseconds(limit)}` },
  { name: "fast_share", label: "Under 300 ms", positions: [0.5, 0.3, 0.2, 0.1, 0.05, 0.02], isBeyond: above, say: (limit) => `more than ${percent(limit)} of the answers` },
  { name: "left_share", label: "One side", positions: [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65], isBeyond: (value, limit) => Math.max(value, 1 - value) > limit, say: (limit) => `more than ${percent(limit)} of the answers` },
];

/**
 * Return the participants beyond at least one of the limits; a figure that is not known is beyond none.
 * @param {Row[]} rows
 * @param {Map<string, number>} limits
 */
export function beyond(rows, limits) {
  const active = SLIDERS.filter(({ name }) => limits.has(name));
  return rows.filter(({ figures }) =>
    active.some(({ name, isBeyond }) => {
      const value = figures?.[name] ?? null;
      return value !== null && isBeyond(value, limits.get(name));
    }),
  );
}

/** The sliders, and how many participants are beyond them. `found` hears of the participants' ids after each change. */
export class Thresholds {
  /** @type {Row[]} */
  #rows = [];
  /** @type {Map<string, number>} */
  #limits = new Map();
  #found;
  #summary = h("p", { role: "status" });

  constructor(found) {
    this.#found = found;
    this.element = h("div", {}, h("div", { class: "sliders" }, ...SLIDERS.map((slider) => this.#row(slider))), this.#summary);
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.#rows = rows;
    this.#update();
  }

  /** @param {Slider} slider */
  #row({ name, label, positions, say }) {
    const id = `threshold-${name}`;
    const said = h("output", { for: id }, "off");
    const range = h("input", { type: "range", id, min: 0, max: positions.length, value: 0, "aria-valuetext": "off" });
    range.addEventListener("input", () => {
      const limit = positions[Number(range.value) - 1];
      if (limit === undefined) this.#limits.delete(name);
      else this.#limits.set(name, limit);
      said.textContent = limit === undefined ? "off" : say(limit);
      range.setAttribute("aria-valuetext", said.textContent);
      this.#update();
    });
    return h("div", { class: "threshold" }, h("label", { for: id }, label), range, said);
  }

  #update() {
    const found = beyond(this.#rows, this.#limits);
    const kept = found.filter(({ keep }) => keep).length;
    this.#summary.textContent = this.#limits.size === 0 ? "All sliders are off." : `${count(found.length, "participant")} of ${number(this.#rows.length)} beyond a threshold; ${number(kept)} of them are kept now.`;
    this.#found(found.map(({ participant }) => participant));
  }
}
