// Checks the device and the window before anything else, and again whenever one of them changes.

import { make, paragraph } from "./screens.js";

/** Whether the experiment allows this device, judged by its capabilities rather than by its name. */
function isAllowed(devices) {
  const fine = matchMedia("(any-pointer: fine)").matches;
  const touch = matchMedia("(pointer: coarse)").matches;
  return (devices.includes("desktop") && fine) || (devices.includes("mobile") && touch);
}

/** Return the names of the texts that say what does not fit; `keyboard` is whether a key was pressed. */
function findProblems({ devices, min_viewport: [width, height] }, { keyboard }) {
  const problems = [];
  const desktop = devices.includes("desktop");
  if (!isAllowed(devices) && !(desktop && keyboard)) problems.push(desktop ? "device_desktop" : "device_mobile");
  if (innerWidth < width || innerHeight < height) problems.push("small_window");
  return problems;
}

/** Resolve when the device and the window fit; until then, show what is missing and how to leave. */
export async function waitUntilDeviceFits({ arrival, journal, screens, strings }) {
  const { page, steps } = arrival;
  const known = { keyboard: false };
  const [width, height] = page.min_viewport;
  let shown = "";
  const fits = () => {
    const problems = findProblems(page, known);
    if (problems.length === 0 || problems.join() === shown) return problems.length === 0;
    shown = problems.join();
    journal.note("device", shown);
    const parts = [...problems, "way_out"].map((name) => paragraph(strings.say(name, { height, width })));
    const address = steps.consent?.decline_url;
    if (address) parts.push(make("a", { href: address, textContent: strings.say("leave") }));
    screens.show({ heading: page.title, parts });
    return false;
  };
  if (fits()) return;
  const listeners = new AbortController();
  const { signal } = listeners;
  await new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
    const check = () => fits() && resolve();
    addEventListener("keydown", () => {
      known.keyboard = true;
      check();
    }, { signal });
    addEventListener("resize", check, { signal });
    matchMedia("(any-pointer: fine)").addEventListener("change", check, { signal });
  });
  listeners.abort();
}
