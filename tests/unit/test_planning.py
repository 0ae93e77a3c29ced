"""What a plan says: curves with bands, answers to a level, what they cost, and texts that hold the same figures."""

import json
from math import inf, isfinite
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from salmon.cli.plan import plan as plan_command
from salmon.errors import SalmonError
from salmon.planning import (
    RANDOM,
    Costs,
    Curve,
    Plan,
    PlannedStudy,
    answers_to,
    costs_of,
    ethics_paragraph,
    neighbour_recovery,
    preregistration_paragraph,
    simulate,
    study_of,
    usual_answers,
)
from salmon.simulate import random_world
from salmon.spec import SamplerSpec, parse_spec

ADAPTIVE = SamplerSpec(name="Adaptive", sampler_class="Adaptive")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return list(simulate(PlannedStudy(12, 2, ADAPTIVE, most=240), 3))


def made_up(*needed_at: int) -> Plan:
    """A plan of runs that reach an accuracy of .8 after so many answers of 1,000."""
    answers = tuple(range(100, 1001, 100))
    values = np.array([[0.6 + 0.2 * min(1, point / at) for point in answers] for at in needed_at])
    curves = {RANDOM: Curve.of(values)}
    return Plan(PlannedStudy(30), answers, len(values), curves, curves, 0.85, {RANDOM: values})


def test_a_plan_rises_towards_what_is_possible_and_the_sampler_needs_fewer_answers(plans: list[Plan]) -> None:
    assert [plan.runs for plan in plans] == [1, 2, 3]
    last = plans[-1]
    assert last.answers == (12, 24, 36, 48, 60, 72, 96, 120, 144, 180, 216, 240)
    for curve in last.accuracy.values():
        assert curve.mean[0] < curve.mean[-1] < last.best_possible
        assert all(low <= mean <= high for low, mean, high in zip(curve.low, curve.mean, curve.high, strict=True))
    assert last.needed("Adaptive", 0.7).middle < last.needed(RANDOM, 0.7).middle
    assert 0.5 < last.usual_level() < last.best_possible


def test_the_same_seed_gives_the_same_plan_and_more_runs_keep_the_first_ones(plans: list[Plan]) -> None:
    (again,) = simulate(PlannedStudy(12, 2, ADAPTIVE, most=240), 1)
    assert again.accuracy["Adaptive"].mean == plans[0].accuracy["Adaptive"].mean
    np.testing.assert_array_equal(plans[-1].values[RANDOM][:1], again.values[RANDOM])
    (other,) = simulate(PlannedStudy(12, 2, ADAPTIVE, most=240, seed=1), 1)
    assert other.accuracy[RANDOM].mean != again.accuracy[RANDOM].mean


def test_careless_or_unsure_people_make_less_possible() -> None:
    best = [
        next(simulate(PlannedStudy(10, most=20, people=people, lapse=lapse), 1)).best_possible
        for people, lapse in (("clear", 0.0), ("typical", 0.0), ("hard", 0.0), ("hard", 0.5))
    ]
    assert best == sorted(best, reverse=True)
    assert len(set(best)) == 4


def test_progress_counts_every_measurement() -> None:
    seen: list[tuple[int, int]] = []
    list(simulate(PlannedStudy(6, sampler=ADAPTIVE, most=30), 2, lambda done, total: seen.append((done, total))))
    assert seen == [(done, 20) for done in range(1, 21)]


def test_people_and_worlds_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(SalmonError, match=r"(?s)no people called 'tired'.*typical or clear or hard"):
        PlannedStudy(30, people="tired")
    with pytest.raises(SalmonError, match="no worlds called 'flat'"):
        PlannedStudy(30, world="flat")


def test_a_band_is_where_the_next_study_lies() -> None:
    # 80 % of Student's prediction intervals of five normal values hold a sixth.
    rng = np.random.default_rng(0)
    values = 0.7 + 0.02 * rng.normal(size=(4000, 6))
    held = 0
    for row in values:
        curve = Curve.of(row[:5, None])
        held += curve.low[0] <= row[5] <= curve.high[0]
    assert held / len(values) == pytest.approx(0.8, abs=0.025)
    assert np.isnan(Curve.of(values[:1, :1]).low).all()


def test_answers_to_a_level_follow_the_running_maximum() -> None:
    assert answers_to([10, 20, 30], [0.5, 0.7, 0.6], 0.6) == pytest.approx(15)
    assert answers_to([10, 20, 30], [0.5, 0.7, 0.6], 0.5) == 10
    assert answers_to([10, 20, 30], [0.5, 0.7, 0.6], 0.71) == inf


def test_the_band_of_answers_is_open_where_a_run_did_not_arrive() -> None:
    needed = made_up(400, 500, 600).needed(RANDOM, 0.8)
    assert needed.middle == pytest.approx(500)
    assert 200 < needed.low < 400 < 600 < needed.high < 1200
    late = made_up(400, 500, 5000).needed(RANDOM, 0.8)
    assert (late.middle, late.low, late.high) == (pytest.approx(500), pytest.approx(400), inf)


def test_costs_count_whole_participants_and_only_answers_that_are_fitted() -> None:
    costs = Costs(answers=50, useful=40, seconds=6, besides=5, pay=12, fee=0.25)
    assert costs.minutes == 10
    assert [costs.participants(answers) for answers in (1, 40, 41)] == [1, 1, 2]
    assert (costs.hours(400), costs.money(400)) == (pytest.approx(10 / 6), pytest.approx(25))


def test_a_spec_says_its_sampler_dimensions_trials_and_checks() -> None:
    spec = parse_spec(
        b"targets: 20\nsamplers: {Random: {}, Adaptive: {d: 3}}\nhtml: {max_queries: 100}\n"
        b"checks: {catch: 5%, repeat: 5%, shared: 10}\nseed: 7\n"
    ).spec
    study = study_of(spec, 20)
    assert (study.n, study.d, study.seed) == (20, 3, 7)
    assert study.sampler is not None
    assert study.sampler.sampler_class == "Adaptive"
    costs = costs_of(spec, seconds=3, pay=0, fee=0, besides=3)
    assert (costs.answers, costs.useful) == (100, pytest.approx(80))
    passive = study_of(parse_spec(b"targets: 20\nsamplers: {Random: {}}\n").spec, 20)
    assert passive.sampler is not None
    assert passive.sampler.sampler_class == "Adaptive"


def test_the_answers_looked_at_follow_the_rule_of_thumb_unless_they_are_given() -> None:
    assert usual_answers(30, 2) == 5889
    assert PlannedStudy(30).points[-1] == 1767
    assert PlannedStudy(30, most=100).points == (30, 60, 90, 100)


def test_the_nearest_neighbours_of_the_truth_are_all_recovered_and_of_chance_few() -> None:
    world = random_world(40, 2, 0)
    assert neighbour_recovery(world, world.coordinates) == 1
    chance = np.mean([neighbour_recovery(world, random_world(40, 2, seed).coordinates) for seed in range(1, 30)])
    assert chance == pytest.approx(3 / 39, abs=0.03)


def test_the_paragraphs_hold_the_figures_of_the_plan() -> None:
    costs = Costs(answers=60, useful=60, besides=2, pay=9)
    plan = made_up(400, 500, 600)
    needed = plan.needed(RANDOM, 0.8)
    ethics, registered = (make(plan, costs, 0.8) for make in (ethics_paragraph, preregistration_paragraph))
    assert f"up to {costs.participants(needed.high)} participants" in ethics
    assert "paid 9.00 an hour, so 0.75 each" in ethics
    assert "predicts 80% of" in ethics
    assert "We plan 500 answers" in registered
    assert f"stop at {needed.high:,.0f} answers at the latest" in registered
    never = made_up(400, 5000)
    assert "planned again with more" in ethics_paragraph(never, costs, 0.8)
    assert "not all simulated studies reached" in preregistration_paragraph(never, costs, 0.8)


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(plan_command)
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_the_command_prints_a_table_and_both_paragraphs_and_draws_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text("targets: 8\nhtml: {max_queries: 20}\n")
    code, text = run("study.yaml", "--runs", "2", "--answers", "40", "--accuracy", "0.55", "--pay", "9")
    assert code == 0
    assert text.startswith("8 targets, d = 2, typical people, random targets; 2 simulated studies.")
    header = next(line for line in text.splitlines() if line.startswith("answers"))
    assert header.split() == ["answers", "random", "queries", "Adaptive", "neighbours", "people", "hours", "money"]
    last = next(line for line in text.splitlines() if line.strip().startswith("40 "))
    assert last.split()[-3:] == ["2", "0.1", "1.20"]
    assert "To reach an accuracy of 55.0%:" in text
    assert "For the ethics board:" in text
    assert "For the preregistration:" in text
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_needs_no_file_and_its_json_has_no_values_that_json_does_not_know(tmp_path: Path) -> None:
    figure = tmp_path / "plan.svg"
    _, text = run("-n", "8", "-d", "1", "--json", "--runs", "2", "--answers", "24", "--figure", str(figure))
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert (read["targets"], read["dimensions"], read["answers"]) == (8, 1, [8, 16, 24])
    assert set(read["to_reach"]) == {"accuracy", RANDOM, "Adaptive"}
    assert all(isfinite(value) for value in read["accuracy"]["Adaptive"]["mean"])
    assert figure.read_bytes() == figure.read_bytes().replace(b"<dc:date>", b"")


def test_the_command_says_what_is_missing() -> None:
    with pytest.raises(SalmonError, match="nothing to plan"):
        run()
    with pytest.raises(SalmonError, match=r"\.jpeg"):
        run("-n", "8", "--figure", "plan.jpeg")
