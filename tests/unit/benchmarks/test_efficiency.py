"""The efficiency benchmark: its arithmetic, its records, and the one claim that every change must keep."""

import json
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.efficiency.__main__ import QUICK, QUICK_ROUNDS, QUICK_SEEDS, main
from benchmarks.efficiency.contenders import CONTENDERS, PRIORITIES, SEARCHES, contender
from benchmarks.efficiency.levels import Curves, answers_needed, needed_with_error, paired_ratio
from benchmarks.efficiency.protocol import Simulated, run, setting
from benchmarks.efficiency.records import Records
from benchmarks.efficiency.replay import Pool
from benchmarks.efficiency.runs import carry_out_all, task
from salmon.answer_files.answer_table import read_answers
from salmon.simulate import egg_world, stream

pytestmark = pytest.mark.slow


def test_adaptive_reaches_80_percent_in_fewer_answers_than_random(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    main(["--quick", "--output", str(path)])
    records = Records(path)
    curves = {
        name: records.curves("accuracy", [task("eggs", 30, name, seed, QUICK_ROUNDS) for seed in range(QUICK_SEEDS)])
        for name in QUICK
    }
    ratio, _, high = paired_ratio(curves["Adaptive"], curves["Random"], 0.80)
    assert ratio < 0.85
    assert high < 1.1
    assert (
        f"| Adaptive | {answers_needed(curves['Adaptive'].answers, curves['Adaptive'].values.mean(axis=0), 0.75):.1f}"
        in (capsys.readouterr().out)
    )


@pytest.mark.parametrize("name", [*CONTENDERS, *SEARCHES, *PRIORITIES])
def test_every_contender_asks_proper_queries_and_learns(name):
    made = setting("eggs", 30)
    curve = run(Simulated(made.make(3), 3), contender(name, 2), 3, judged_by=made.judged_by, rounds=6)
    assert curve["answers"] == [30, 60, 90, 120, 150, 180]
    # Greedy searches ask about a few heads over and over: six answers a target teach them next to nothing.
    assert curve["accuracy"][-1] > (0.45 if "reedy" in name else 0.6)
    assert all(1 <= heads <= 30 for heads in curve["heads"])


def test_a_run_is_repeated_exactly_and_paired_runs_begin_alike():
    made = setting("clusters", 12)
    runs = [
        run(Simulated(made.make(1), 1), contender(name, 2), 1, judged_by=made.judged_by, rounds=4)
        for name in ("Adaptive", "Adaptive", "Uncertainty")
    ]
    assert runs[0]["accuracy"] == runs[1]["accuracy"]
    assert runs[0]["accuracy"][1:] != runs[2]["accuracy"][1:]
    first = [Simulated(made.make(1), 1).first(12).tolist() for _ in range(2)]
    assert first[0] == first[1]


def test_a_queue_delays_what_was_learned_by_its_length():
    made = setting("eggs", 30)
    watched = Mock(wraps=contender("Adaptive", 2))
    run(Simulated(made.make(0), 0), watched, 0, judged_by=made.judged_by, rounds=4, queue=90)
    posted = [(len(rows), len(pending), count) for (_, rows, pending, count), _ in watched.search.call_args_list]
    assert posted == [(30, 0, 120), (60, 90, 30), (90, 90, 30)]


MEAN = np.array([0.5, 0.7, 0.6, 0.9])


@pytest.mark.parametrize(
    ("mean", "level", "falling", "needed"),
    [
        (MEAN, 0.6, False, 1.5),
        (MEAN, 0.8, False, 3.5),
        (MEAN, 0.95, False, np.inf),
        (MEAN, 0.4, False, 1.0),
        (10 * (1 - MEAN), 4.0, True, 1.5),
    ],
)
def test_levels_are_reached_between_points_by_the_running_best(mean, level, falling, needed):
    assert answers_needed(np.array([1.0, 2.0, 3.0, 4.0]), mean, level, falling=falling) == pytest.approx(needed)


def test_ratios_are_paired_so_that_common_luck_cancels():
    luck = 0.02 * np.random.default_rng(0).normal(size=(30, 1))
    grid = np.arange(1.0, 31.0)
    slow = Curves(grid, 0.5 + 0.01 * grid + luck, tuple(range(30)))
    fast = Curves(grid, 0.5 + 0.02 * grid + luck, tuple(range(30)))
    ratio, low, high = paired_ratio(fast, slow, 0.7)
    assert ratio == pytest.approx(0.5, abs=0.01)
    assert 0.49 < low < high < 0.51
    assert np.ptp(paired_ratio(Curves(grid, fast.values, tuple(reversed(range(30)))), slow, 0.7)[1:]) > high - low
    assert needed_with_error(slow, 0.7)[1] == pytest.approx(2 / np.sqrt(30), rel=0.5)


def test_a_sampler_that_never_arrives_is_worse_than_any_ratio():
    grid = np.arange(1.0, 4.0)
    good = Curves(grid, np.array([[0.5, 0.8, 0.9]] * 3), (0, 1, 2))
    poor = Curves(grid, np.array([[0.5, 0.6, 0.7]] * 3), (0, 1, 2))
    assert paired_ratio(poor, good, 0.8)[0] == np.inf
    assert paired_ratio(good, poor, 0.8)[0] == pytest.approx(2 / 3)


def test_a_stopped_benchmark_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "runs.jsonl"
    tasks = [task("eggs", 30, "Random", seed, 2) for seed in range(3)]
    carry_out_all(tasks[:2], Records(path), 1)
    path.write_text(path.read_text() + '{"version": 1, "cut')
    before = path.read_text().count('"curve"')
    records = Records(path)
    assert [records.has(each) for each in tasks] == [True, True, False]
    assert not records.has(task("eggs", 30, "Random", 0, 3))
    carry_out_all(tasks, records, 1)
    assert path.read_text().count('"curve"') == before + 1
    assert records.curves("accuracy", tasks).values.shape == (3, 2)


def test_runs_may_be_spread_over_processes(tmp_path):
    tasks = [task("eggs", 30, "Random", seed, 2) for seed in range(2)]
    apart, together = Records(tmp_path / "apart.jsonl"), Records(None)
    carry_out_all(tasks, apart, 2)
    carry_out_all(tasks, together, 1)
    for measure in ("accuracy", "rank_error"):
        assert np.array_equal(apart.curves(measure, tasks).values, together.curves(measure, tasks).values)


@pytest.fixture
def pool_csv():
    world = egg_world(30)
    rows = world.answer(world.random_queries(4500, stream(0, "queries")), stream(0, "answers")).tolist()
    names = ["Random"] * 2500 + ["ARR"] * 1500 + ["Test"] * 500
    return "head,winner,loser,sampler\n" + "".join(
        f"{h},{w},{x},{name}\n" for (h, w, x), name in zip(rows, names, strict=True)
    )


def test_a_replay_gives_recorded_answers_each_once_and_none_of_the_test_set(pool_csv):
    table = read_answers(pool_csv)
    pool = Pool(table, 0)
    given = list(map(tuple, pool.first(100).tolist()))
    rng = np.random.default_rng(0)
    while len(given) < 900:
        answers, _ = pool.answer(lambda count: egg_world(30).random_queries(count, rng), 50)
        assert len(answers) == 50
        given += list(map(tuple, answers.tolist()))
    assert Counter(given) <= Counter(map(tuple, table.triplets[~table.test].tolist()))


def test_the_tables_are_printed_for_worlds_and_for_peoples_answers(capsys, tmp_path, pool_csv):
    path = tmp_path / "answers.csv"
    path.write_text(pool_csv)
    drawn = tmp_path / "curves.svg"
    for options in (("--svg", str(drawn)), ("--data", str(path))):
        main(["--samplers", "Random", "Adaptive", "--seeds", "2", "--rounds", "4", *options])
    printed = capsys.readouterr().out
    for part in ("eggs, n = 30, 2 paired seeds (Bayes accuracy 0.8355)", "| / Random |", "replay, n = 30"):
        assert part in printed
    assert "Adaptive" in drawn.read_text()


def test_a_replay_without_its_file_says_that_it_was_skipped(capsys, tmp_path):
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(tmp_path / "nothing.csv")])
    assert caught.value.code == 0
    assert "Skipped" in capsys.readouterr().err


def test_the_published_findings_are_measured(capsys, tmp_path):
    output = tmp_path / "runs.jsonl"
    main(["--source", "--n", "30", "--seeds", "1", "--rounds", "3", "--output", str(output)])
    printed = capsys.readouterr().out
    for part in ("Unique heads among the P most informative queries", "| greedy-100 |", "| priority gain |"):
        assert part in printed
    assert all("curve" in json.loads(line) for line in output.read_text().splitlines())
