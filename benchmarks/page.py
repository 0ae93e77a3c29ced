"""The participant page in a real Chromium: time to the first trial, from answer to next
targets, and honest response times.

Run by hand: `OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.page`. Starts the program on a directory of its own,
prints the figures, and keeps nothing. Frames are those of the browser that runs it, at the refresh interval it measures
itself.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.participant import Laboratory
from tests.program import Program

TRIALS = 200
REPEATS = 7
DELAYS_MS = (300, 450, 700)
#: Slow 4G as Lighthouse has it: 150 ms for every request, 1.6 Mbit/s down, 0.75 Mbit/s up.
SLOW_4G = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 93_750}
SPEC = """
targets: [red, orange, yellow, green, blue, purple, pink, brown, black, white, cyan, magenta]
html: {max_queries: 0}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 0}
"""

#: Presses Begin as soon as it is there, and notes when the first trial is on the screen (second frame).
BEGIN = """
const waiting = setInterval(() => {
  const button = [...document.querySelectorAll("#message button.first")].pop();
  if (!button) return;
  clearInterval(waiting);
  window.beganMs = performance.now();
  button.click();
}, 1);
document.addEventListener("salmon:query", () => { window.firstMs ??= performance.now(); });
"""

#: Answers by itself, each time a while after the onset, and notes the frames in between.
ANSWER = """async ([trials, delayMs]) => {
  const painted = [];
  const foot = document.getElementById("q-left");
  const next = () => new Promise((resolve) => {
    document.addEventListener("salmon:query", () => resolve(performance.now()), { once: true });
  });
  for (let trial = 0; trial < trials; trial += 1) {
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    const shown = next();
    const answered = performance.now();
    foot.click();
    painted.push((await shown) - answered);
  }
  return painted;
}"""

#: Sees by itself when new targets are attached and have had two frames, and presses a key a known time after that.
DELAYED = """async ([repeats, delayMs]) => {
  const errors = [];
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    await new Promise((resolve) => setTimeout(resolve, 150)); // past the lock-out
    const onset = new Promise((resolve) => {
      const watching = new MutationObserver(() => {
        watching.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
      });
      watching.observe(document.getElementById("q-head"), { childList: true });
    });
    document.getElementById("q-right").click();
    const shownMs = await onset;
    while (performance.now() < shownMs + delayMs) await new Promise((resolve) => setTimeout(resolve, 1));
    const pressedMs = performance.now();
    const sent = new Promise((resolve) => {
      document.addEventListener("salmon:answer", ({ detail }) => resolve(detail.rt_ms), { once: true });
    });
    document.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "ArrowLeft" }));
    document.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true, key: "ArrowLeft" }));
    errors.push((await sent) - (pressedMs - shownMs));
    await new Promise((resolve) => document.addEventListener("salmon:query", resolve, { once: true }));
  }
  return errors;
}"""

FRAME = """() => new Promise((resolve) => {
  const times = [];
  const tick = (at) => (times.push(at) > 60 ? resolve((times[60] - times[0]) / 60) : requestAnimationFrame(tick));
  requestAnimationFrame(tick);
})"""


def first_trial_ms(browser: Browser, address: str) -> float:
    """From navigation to the first trial on the screen, on slow 4G and with nothing in the cache."""
    with browser.new_page() as page:
        page.add_init_script(BEGIN)
        network = page.context.new_cdp_session(page)
        network.send("Network.enable")
        network.send("Network.emulateNetworkConditions", SLOW_4G)
        page.goto(address)
        page.locator("#q-left:not(.disabled)").wait_for()
        return page.evaluate("window.firstMs")


def begun(browser: Browser, address: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(address)
    page.get_by_role("button", name="Begin").click()
    page.locator("#q-left:not(.disabled)").wait_for()
    page.wait_for_timeout(200)
    return page


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with (
        tempfile.TemporaryDirectory() as folder,
        Program(Path(folder)) as program,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]) as browser,
    ):
        address = Laboratory(program, program.add_user()).launch("bench", SPEC)
        first = [first_trial_ms(browser, address) for _ in range(REPEATS)]
        print(f"first trial on slow 4G: median {statistics.median(first):.0f} ms, worst {max(first):.0f} (aim 1000)")

        page = begun(browser, address)
        frame_ms = page.evaluate(FRAME)
        print(f"refresh interval: {frame_ms:.2f} ms")
        frames = [value / frame_ms for value in page.evaluate(ANSWER, [arguments.trials, 150])]
        shares = ", ".join(f"p{int(100 * share)} {quantile(frames, share):.2f}" for share in (0.5, 0.95, 0.99))
        print(
            f"answer to next targets over {arguments.trials} trials, in frames: {shares}, worst {max(frames):.2f} (aim 2)"
        )

        for delay_ms in DELAYS_MS:
            errors = page.evaluate(DELAYED, [20, delay_ms])
            worst = max(errors, key=abs)
            print(
                f"response time, known delay {delay_ms} ms: error median {statistics.median(errors):+.2f} ms, "
                f"worst {worst:+.2f} ms (aim within {frame_ms:.1f})"
            )


if __name__ == "__main__":
    main()
