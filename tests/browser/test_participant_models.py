"""The modules of the participant page that need no document: choices, outbox, run, texts and contrast."""

import pytest
from playwright.sync_api import Page

from tests.browser.participant import Laboratory, plain

pytestmark = pytest.mark.browser

MODELS = """async () => {
  const { Choosing } = await import("/static/participant/choosing.js");
  const { Outbox } = await import("/static/participant/outbox.js");
  const { Run } = await import("/static/participant/run.js");
  const { Strings } = await import("/static/participant/strings.js");
  const { isDark } = await import("/static/participant/appearance.js");
  const facts = {};

  const choosing = new Choosing({ keys: ["f", "J"], minRtMs: 200 });
  const before = choosing.keyDown("f", 50);
  choosing.begin(100);
  facts.held = [before, choosing.keyDown("f", 400, { repeat: true }), choosing.keyDown("f", 400)];
  choosing.keyUp("F");
  facts.early = choosing.keyDown("f", 299);
  choosing.keyUp("f");
  facts.modified = choosing.keyDown("j", 350, { modified: true });
  choosing.keyUp("j");
  facts.right = choosing.keyDown("j", 350);
  facts.second = choosing.keyDown("f", 360);
  choosing.begin(1000);
  choosing.pointerDown("left", 1300);
  facts.pointer = choosing.click("left", 1450, "touch");
  choosing.begin(2000);
  choosing.pointerDown("left", 2100);
  facts.pressedTooEarly = choosing.click("left", 2400, "mouse");
  facts.assistive = choosing.click("right", 2500, "mouse");

  let number = 0;
  let kept = [];
  const asked = [];
  const fetchQuery = async (trial, skipped) => {
    asked.push([trial, skipped]);
    return { token: `t${(number += 1)}`, trial };
  };
  const keep = (queries) => (kept = queries.map((query) => query.token));
  const run = new Run({ fetchQuery, given: 0, keep, limit: 3 });
  const first = await run.next();
  await Promise.all([run.prefetch(), run.prefetch()]);
  facts.oneAhead = [number, kept];
  const answer = run.answer(7, { rt_ms: 5 });
  facts.answer = [answer, run.answer(7, {}), run.given, kept];
  facts.asked = [...asked];
  const numbers = { next: 3, open: [2] };
  const again = new Run({ fetchQuery, given: 1, keep, kept: [{ token: "t1", trial: 1 }, { token: "t2", trial: 2 }], limit: 2, numbers });
  facts.again = [(await again.next()).token, number, again.complete];
  again.answer(1, {});
  facts.complete = [again.complete, await again.next()];
  again.removeAnswers(1);
  facts.removed = [again.complete, (await again.next()).token];

  asked.length = 0;
  let lost = true;
  const flaky = async (trial, skipped) => {
    asked.push([trial, skipped]);
    if (trial === 3) return { over: true };
    if (lost && trial === 5) throw new Error("The reply is lost.");
    return { token: `f${trial}`, trial };
  };
  const fifth = new Run({ fetchQuery: flaky, given: 0, limit: 0, numbers: { next: 5, open: [3, 4] } });
  facts.open = (await fifth.next()).token;
  fifth.skip();
  facts.lost = await fifth.next().catch((failure) => failure.message);
  lost = false;
  facts.repeated = [(await fifth.next()).token, asked];

  const listed = { 5: { token: "listed", trial: 2 } };
  const served = [];
  const instead = async (number) => {
    served.push(number);
    return listed[number] ?? { token: `o${number}`, trial: number };
  };
  const windows = new Run({ fetchQuery: instead, given: 1, limit: 3, numbers: { next: 5, open: [] } });
  facts.instead = [(await windows.next()).token, await windows.prefetch()];
  windows.answer(1, {});
  delete listed[5];
  facts.putBack = [(await windows.next()).token, [...served]];
  windows.answer(1, {});
  facts.ended = [windows.complete, await windows.next()];
  windows.resume(1);
  listed[6] = { token: "listed", trial: 2 };
  facts.resumed = [windows.given, (await windows.next()).token];
  const keeps = new Run({ fetchQuery: instead, given: 0, kept: [{ token: "listed", trial: 2 }], limit: 9, numbers: { next: 6, open: [2] } });
  facts.inHand = [(await keeps.next()).token, await keeps.next()];

  const storage = { kept: [], all: async () => [], put: async (item) => storage.kept.push(item.token),
    remove: async (tokens) => (storage.kept = storage.kept.filter((token) => !tokens.includes(token))) };
  let fail = true;
  const sent = [];
  const outbox = new Outbox({ storage, send: async (list) => {
    facts.storedFirst = [...storage.kept];
    if (fail) throw new Error("away");
    sent.push(...list.map(({ token, sent_attempts }) => [token, sent_attempts]));
    return list.map(({ token }) => ({ recorded: true, token }));
  } });
  await outbox.put({ token: "a", trial: 5, winner: 1 }, "ada");
  facts.failing = [outbox.failing, outbox.waiting, outbox.waitingOf("ada"), outbox.waitingOf("bob"), outbox.unsent];
  fail = false;
  await outbox.put({ token: "b", winner: 2 }, "bob");
  facts.sent = [sent, outbox.waiting, storage.kept, outbox.failing];

  const strings = new Strings({ hello: "{a} and {b} {c}" });
  facts.strings = [strings.say("hello", { a: 1, b: 2 }), strings.say("nothing")];
  facts.dark = ["rgb(0, 0, 0)", "rgb(128, 128, 128)", "rgb(255, 255, 255)", "rgb(90, 90, 90)"].map(isDark);
  return facts;
}"""


#: Somebody answers eight times after a while, then twice as slowly, and then at once.
PACE = """async () => {
  const { Run } = await import("/static/participant/run.js");
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const asked = [];
  const fetchQuery = async (trial) => {
    asked.push([trial, performance.now()]);
    return { token: `t${trial}`, trial };
  };
  const run = new Run({ fetchQuery, given: 0, limit: 0 });
  const late = [];
  let doubled = 0;
  const decide = async (ms) => {
    const { trial } = await run.next();
    const shown = performance.now();
    run.prefetch();
    await pause(ms);
    run.answer(1, {});
    const [next, ...more] = asked.filter(([number]) => number > trial);
    doubled += more.length;
    late.push(next ? Math.round(next[1] - shown) : null);
  };
  for (let trial = 0; trial < 8; trial++) await decide(300);
  const early = Math.max(...late);
  await decide(600);
  const waited = late.at(-1);
  await decide(0);
  const overtaken = late.at(-1);
  const last = await run.next();
  await pause(400);
  return { doubled, early, last: last.trial, overtaken, queries: asked.length, waited };
}"""


def test_the_next_query_is_asked_for_as_late_as_the_pace_of_the_participant_allows(
    laboratory: Laboratory, page: Page
) -> None:
    page.goto(laboratory.launch("pace", plain(1)) + "?puid=pace")
    found = page.evaluate(PACE)
    assert found["early"] < found["waited"] <= 300
    assert found["waited"] >= 100, found
    assert {name: found[name] for name in ("doubled", "last", "overtaken", "queries")} == {
        "doubled": 0, "last": 11, "overtaken": None, "queries": 11,
    }, found  # fmt: skip


def test_choices_outbox_run_texts_and_contrast_work_without_a_document(laboratory: Laboratory, page: Page) -> None:
    page.goto(laboratory.launch("models", plain(1)) + "?puid=models")
    choice = {"input": "key", "onset_client_ms": 100, "rt_ms": 250, "side": "right"}
    assert page.evaluate(MODELS) == {
        "held": [None, None, None],
        "early": None,
        "modified": None,
        "right": choice,
        "second": None,
        "pointer": {"input": "touch", "onset_client_ms": 1000, "rt_ms": 300, "side": "left"},
        "pressedTooEarly": None,
        "assistive": {"input": "key", "onset_client_ms": 2000, "rt_ms": 500, "side": "right"},
        "oneAhead": [2, ["t1", "t2"]],
        "answer": [{"token": "t1", "trial": 1, "winner": 7, "rt_ms": 5}, None, 1, ["t2"]],
        "asked": [[1, []], [2, []]],
        "open": "f4",
        "lost": "The reply is lost.",
        "repeated": ["f5", [[3, []], [4, []], [5, [4]], [5, [4]]]],
        "again": ["t2", 2, False],
        "complete": [True, None],
        "removed": [False, "t3"],
        "instead": ["listed", None],
        "putBack": ["o5", [5, 5, 5]],
        "ended": [True, None],
        "resumed": [2, "listed"],
        "inHand": ["listed", None],
        "storedFirst": ["a", "b"],
        "failing": [True, 1, [5], [], [{"token": "a", "winner": 1, "sent_attempts": 2}]],
        "sent": [[["a", 2], ["b", 1]], 0, [], False],
        "strings": ["1 and 2 {c}", ""],
        "dark": [True, False, False, True],
    }
