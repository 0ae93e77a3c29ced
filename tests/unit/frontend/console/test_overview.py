"""The numbers and sentences of the overview, computed from plain values."""

import itertools
from dataclasses import replace

import pytest

from frontend.console.overview import overview
from frontend.console.verdict import OverviewInputs, SamplerView, goal_of
from frontend.store.answers import MINUTE_MS, Counts
from frontend.store.experiments import ExperimentState
from frontend.store.models import HeldOutAccuracy, HistoryLine
from salmon.learning_curve import Outlook
from salmon.spec import TargetSpec, parse_spec
from salmon.wire import Heartbeat

NOW_MS = 10_000 * MINUTE_MS
STATE = ExperimentState("e" * 10, "eggs", "open", 1, "ada", 0, NOW_MS - 60 * MINUTE_MS, {"answers": 600})
BEAT = Heartbeat(started_ms=0, beat_ms=NOW_MS, workers=2)


EACH_TARGET = {f"head:{target}": 20 for target in range(30)}


def seen(spec: str = "targets: 30\n", *, counts: dict[str, int] | None = None, **changes: object) -> OverviewInputs:
    known = OverviewInputs(
        state=STATE,
        spec=parse_spec(spec, stored=True).spec,
        n=30,
        counts=Counts.of({name: str(value) for name, value in (EACH_TARGET if counts is None else counts).items()}),
        arrived=7,
        samplers=(SamplerView("Adaptive", "Adaptive", active=True, listed=300, pending=2, last=None),),
        heartbeat=BEAT,
        now_ms=NOW_MS,
    )
    return replace(known, **changes)


RANDOM = SamplerView("Random", "Random", active=False, listed=0, pending=0, last=None)
PASSIVE = seen("targets: 30\nsamplers: {Random: {}}\n", samplers=(RANDOM,))


def test_the_expected_finish_follows_from_the_pace_of_the_last_half_hour() -> None:
    counts = {f"minute:{10_000 - k}": 20 for k in range(30)} | {"minute:9000": 5000}
    answers = overview(seen("targets: 30\nstopping: {answers: 1200}\n", counts=counts))["answers"]
    assert (answers["a_minute"], answers["to_go"], answers["finish_ms"]) == (20, 600, NOW_MS + 30 * MINUTE_MS)


def test_nobody_answering_means_no_expected_finish() -> None:
    assert overview(seen(counts={"minute:9000": 600}))["answers"]["finish_ms"] is None


def test_the_goal_is_the_experimenters_own_where_the_file_names_one() -> None:
    assert goal_of(seen("targets: 30\nstopping: {answers: 900}\n")).answers == 900
    assert goal_of(seen("targets: 30\nhtml: {max_queries: 40}\nstopping: {participants: 25}\n")).answers == 1000


def test_the_rule_of_thumb_wants_fewer_answers_with_an_active_sampler() -> None:
    assert goal_of(seen()).answers < goal_of(PASSIVE).answers


def test_a_missing_learning_process_is_reported_only_if_a_sampler_needs_it() -> None:
    assert "not running" in overview(seen(heartbeat=None))["sentences"][0]["what"]
    for unneeded in (PASSIVE, seen(state=replace(STATE, state="closed"))):
        assert overview(replace(unneeded, heartbeat=None))["sentences"] == []


def test_errors_of_the_learning_process_come_first() -> None:
    shown = overview(seen(heartbeat=replace(BEAT, errors=("Adaptive: the refit failed (MemoryError: )",))))
    assert shown["sentences"][0]["level"] == "error"
    assert "the refit failed" in shown["sentences"][0]["what"]


def test_fallbacks_late_answers_and_targets_never_asked_about_have_warnings() -> None:
    state = replace(STATE, counters={"answers": 1000, "fallbacks:Adaptive": 4406})  # most of them were never answered
    shown = overview(
        seen(
            state=state,
            counts={"late": 80, "type:fallback": 100, "type:active": 900}
            | {f"head:{target}": 33 for target in range(29)},
        )
    )
    whats = " ".join(sentence["what"] for sentence in shown["sentences"])
    for what in (
        "10.0 % of the answers are to random queries",
        "8.0 % of the answers came more than ten minutes",
        "never the head of a query: 1 of 30",
    ):
        assert what in whats


def test_a_series_of_any_length_has_few_bins_and_loses_no_answer() -> None:
    for minutes in (1, 100, 3000, 100_000, 3_000_000):
        counts = {f"minute:{k}": 2 for k in range(0, minutes, max(1, minutes // 500))} | {f"began:{minutes - 1}": 1}
        rows = overview(seen(counts=counts))["series"]["rows"]
        assert len(rows) <= 242
        assert sum(row[1] for row in rows) == sum(v for k, v in counts.items() if k.startswith("minute"))


def test_histograms_run_without_gaps_from_the_first_to_the_last_bin() -> None:
    bins = overview(seen(counts={"rt:70": 3, "rt:75": 1}))["histograms"]["response"]
    assert [row[2] for row in bins] == [3, 0, 0, 0, 0, 1]
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bins))


SURE = Outlook(predictions=900, accuracy=0.842, gain=0.002, gain_high=0.004, more=0)


def told(outlook: Outlook | None = None, spec: str = "targets: 30\n", **changes: object) -> tuple[str, str, str]:
    """Level, sentence and button of the verdict."""
    view = SamplerView("Adaptive", "Adaptive", active=True, listed=300, pending=2, last=None, outlook=outlook)
    found = overview(replace(seen(spec, samplers=(view,)), **changes))["verdict"]  # type: ignore[arg-type]
    return found["level"], found["what"], found["action"]


def test_the_first_line_says_whether_it_is_enough() -> None:
    enough = "Enough: closing now costs at most 0.4 points of accuracy (95 %)."
    assert told(SURE) == ("good", enough, "close")
    less = replace(SURE, gain_high=0.02, more=617, more_low=244, more_high=1932)
    assert told(less) == ("info", "Not yet: about 620 more answers (95 %: 240 to 1,900).", "invite")
    assert told(replace(less, more_high=None))[1] == "Not yet: about 620 more answers (95 %: 240 or more)."
    assert (
        told(replace(less, more=0, more_low=0))[1] == "Not yet: it may be enough, or up to 1,900 more answers (95 %)."
    )
    assert told(replace(SURE, gain_high=0.2, more=None))[1] == "Not yet: far more answers are needed."
    assert told(SURE, state=replace(STATE, state="closed")) == ("good", enough, "")
    assert told(replace(SURE, gain_high=0.02, more=617), state=replace(STATE, state="paused"))[2] == "open"


def test_the_reason_names_the_held_out_accuracy_alone() -> None:
    judged = HeldOutAccuracy(0.671, 0.65, 0.69, judged=800, answers=2000)
    line = HistoryLine("1-1", {"generation": 9, "accuracy": 0.565}, has_coordinates=False)
    view = SamplerView("Adaptive", "Adaptive", True, 300, 2, line, SURE, judged)
    found = overview(seen("targets: 30\n", samplers=(view,)))  # type: ignore[arg-type]
    assert found["verdict"]["why"] == (
        "The map predicts 67.1 % of people's answers that it has not seen; it would predict about 67.3 % if nobody ever"
        " stopped answering."
    )
    row = found["samplers"][0]
    assert (row["accuracy"], row["judged"], row["evaluated"]) == (0.671, 800, 2000)
    unjudged = overview(seen("targets: 30\n", samplers=(replace(view, held_out=None),)))  # type: ignore[arg-type]
    assert (unjudged["verdict"]["why"], unjudged["samplers"][0]["accuracy"]) == ("", None)


def test_no_more_is_to_gain_than_the_noise_ceiling_leaves_above_the_accuracy() -> None:
    judged = HeldOutAccuracy(0.759, 0.74, 0.778, judged=800, answers=2000)
    far = Outlook(predictions=900, accuracy=0.70, gain=0.122, gain_high=0.19, more=22_000, more_high=60_000)

    def said(held_out: HeldOutAccuracy | None = judged, outlook: Outlook = far, **numbers: float) -> tuple[str, str]:
        line = HistoryLine("1-1", {"generation": 9, **numbers}, has_coordinates=False)
        view = SamplerView("Adaptive", "Adaptive", True, 300, 2, line, outlook, held_out)
        found = overview(seen(samplers=(view,)))["verdict"]  # type: ignore[arg-type]
        return found["what"], found["why"]

    assert said()[1].endswith("can still bring up to 19.0 points (95 %), about 12.2 points.")
    bounded = said(ceiling=0.79, ceiling_high=0.80)
    assert bounded[1].endswith("can still bring up to 6.0 points (95 %), about 3.1 points.")
    # Without an interval of the ceiling, only the middle of the gain is bounded.
    assert said(ceiling=0.79)[1].endswith("can still bring up to 19.0 points (95 %), about 3.1 points.")
    # An accuracy that is not known is nothing to be compared with the ceiling.
    assert said(None, ceiling=0.79, ceiling_high=0.80)[1].endswith("up to 19.0 points (95 %), about 12.2 points.")
    surely = HeldOutAccuracy(0.80, 0.796, 0.81, judged=20_000, answers=90_000)
    what, why = said(surely, ceiling=0.79, ceiling_high=0.80)
    assert what == "Enough: closing now costs at most 0.4 points of accuracy (95 %)."
    assert "it would predict about 80.0 % if nobody ever stopped" in why
    assert said(outlook=SURE, ceiling=0.79, ceiling_high=0.80)[0] == what, "a ceiling adds nothing to a gain"


def test_it_is_too_early_with_few_answers_or_while_a_target_has_none() -> None:
    few = replace(STATE, counters={"answers": 8 * 30 - 1})
    assert told(state=few)[:2] == ("info", "Too early to say: there are fewer than 8 answers a target.")
    assert told(state=replace(STATE, counters={"answers": 8 * 30}))[1].startswith("Not yet: about ")
    many = replace(STATE, counters={"answers": 9000})
    assert told(state=many) == ("info", "Too early to say: the map has predicted fewer than 200 answers.", "invite")
    assert told(SURE, state=many)[0] == "good"
    for gap, sentence in ((1, "1 of 30 targets has"), (2, "2 of 30 targets have")):
        counts = Counts.of(dict.fromkeys(list(EACH_TARGET)[gap:], "20"))
        assert told(SURE, state=many, counts=counts)[1] == f"Too early to say: {sentence} no answer yet."
        assert goal_of(replace(seen(), counts=counts)).label == "rule of thumb"
    one_as_foot = Counts.of(dict.fromkeys([*list(EACH_TARGET)[1:], "foot:0"], "20"))
    assert told(SURE, state=many, counts=one_as_foot)[0] == "good"


def test_the_goal_is_what_the_first_line_says_is_needed() -> None:
    def goal(outlook: Outlook, spec: str = "targets: 30\n") -> tuple[int, int, str]:
        view = SamplerView("Adaptive", "Adaptive", active=True, listed=300, pending=2, last=None, outlook=outlook)
        answers = overview(seen(spec, samplers=(view,)))["answers"]  # type: ignore[arg-type]
        return answers["goal"], answers["to_go"], answers["goal_is"]

    total = STATE.counters["answers"]
    less = replace(SURE, gain_high=0.02, more=617, more_low=244, more_high=1932)
    assert goal(less) == (total + 620, 620, "estimate")
    assert goal(replace(less, more=0)) == (total + 1900, 1900, "estimate")
    assert goal(SURE) == (total, 0, "estimate")
    assert goal(less, "targets: 30\nstopping: {answers: 5000}\n")[2] == "your goal"
    assert goal(replace(SURE, gain_high=0.2, more=None))[2] == "rule of thumb"


def test_the_first_line_before_anything_is_known() -> None:
    assert told(state=replace(STATE, state="draft", counters={})) == ("info", "Not open yet.", "open")
    assert told(state=replace(STATE, counters={})) == ("info", "No answers yet.", "invite")
    assert told()[:2] == ("info", "Not yet: about 1,000 more answers.")
    assert overview(PASSIVE)["verdict"]["why"].startswith("No sampler of this experiment fits a map")


def test_what_is_wrong_comes_before_whether_it_is_enough() -> None:
    assert told(SURE, heartbeat=None) == ("error", "Something is wrong: the learning process is not running.", "")


def test_an_own_goal_that_is_reached_is_enough() -> None:
    assert told(spec="targets: 30\nstopping: {answers: 600}\n")[:2] == (
        "good",
        "Enough: your goal of 600 answers is reached.",
    )


@pytest.mark.parametrize("field", ["opened_ms", "created_ms"])
def test_answers_that_were_imported_are_no_pace(field: str) -> None:
    opened = replace(STATE, **{"opened_ms": 1, field: NOW_MS - 3 * MINUTE_MS + 40_000})
    imported = {"minute:9996": 300, "minute:9997": 300}
    assert overview(seen(counts=imported, state=opened))["answers"]["a_minute"] == 0
    assert overview(seen(counts=imported | {"minute:9999": 6}, state=opened))["answers"]["a_minute"] == 3


@pytest.mark.parametrize(("arrived", "named"), [(7, ["3.png", "1.png"]), (100, ["3.png"]), (1000, [])])
def test_files_that_many_pages_could_not_show_are_named_and_a_poor_connection_is_not(
    arrived: int, named: list[str]
) -> None:
    targets = [TargetSpec(k, "image", "", f"{k}.png") for k in range(30)]
    counts = EACH_TARGET | {"load_failed:1": 3, "load_failed:2": 2, "load_failed:3": 9, "load_failed:77": 50}
    said = overview(seen(counts=counts, targets=targets, arrived=arrived))["sentences"]
    assert [line["what"].split("'")[1] for line in said if "could not be shown" in line["what"]] == named
