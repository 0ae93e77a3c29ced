// Who can take part with this device and window: asked before anything else, and asked again when something changes.

import { make, paragraph } from "./screens.js";

/** Whether this device is one of the allowed ones, by what it can do and not by what it calls itself. */
function isAllowed(devices) {
  const fine = matchMedia("(any-pointer: fine)").matches;
  const touch = matchMedia("(pointer: coarse)").matches;
  return (devices.includes("desktop") && fine) || (devices.includes("mobile") && touch);
}

/** The names of the texts that say what is missing; none where nothing is. `keyboard`: a key was pressed. */
function missing({ devices, min_viewport: [width, height] }, { keyboard }) {
  const found = [];
  const desktop = devices.includes("desktop");
  if (!isAllowed(devices) && !(desktop && keyboard)) found.push(desktop ? "device_desktop" : "device_mobile");
  if (innerWidth < width || innerHeight < height) found.push("small_window");
  return found;
}

/** Resolves when the device and the window fit; until then a screen says what is missing, and how to leave. */
export async function pass({ arrival, journal, screens, strings }) {
  const { page, steps } = arrival;
  const known = { keyboard: false };
  const [width, height] = page.min_viewport;
  let told = "";
  const look = () => {
    const wanted = missing(page, known);
    if (wanted.length === 0 || wanted.join() === told) return wanted.length === 0;
    told = wanted.join();
    journal.note("device", told);
    const parts = [...wanted, "way_out"].map((name) => paragraph(strings.say(name, { height, width })));
    const address = steps.consent?.decline_url;
    if (address) parts.push(make("a", { href: address, textContent: strings.say("leave") }));
    screens.show({ heading: page.title, parts });
    return false;
  };
  if (look()) return;
  const changed = new AbortController();
  const { signal } = changed;
  await new Promise((resolve) => {
    const check = () => look() && resolve();
    addEventListener("keydown", () => check((known.keyboard = true)), { signal });
    addEventListener("resize", check, { signal });
    matchMedia("(any-pointer: fine)").addEventListener("change", check, { signal });
  });
  changed.abort();
}
