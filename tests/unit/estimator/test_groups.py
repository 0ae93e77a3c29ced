"""People of two worlds are told apart, people of one are not, and names that mean something are found to."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from salmon.errors import SalmonError
from salmon.estimator.groups import agreement, compare_names, find_groups
from salmon.simulate import SimulatedParticipant, random_world
from tests.program import REPOSITORY

N, PEOPLE, EACH = 20, 12, 150
TRUE = np.arange(PEOPLE) % 2


def answers(seed: int, worlds: int) -> tuple[np.ndarray, np.ndarray]:
    """Answers of people who live in one of some worlds by turns, and who gave each."""
    rng = np.random.default_rng(seed)
    seen = [SimulatedParticipant(random_world(N, 2, 10 * seed + place), lapse=0.05) for place in range(worlds)]
    rows = [
        seen[person % worlds].react_all(seen[person % worlds].world.random_queries(EACH, rng), rng)[0]
        for person in range(PEOPLE)
    ]
    return np.concatenate(rows), np.repeat(np.arange(PEOPLE), EACH)


@pytest.mark.parametrize("seed", [1, 2])
def test_people_of_two_worlds_are_told_apart(seed: int) -> None:
    found = find_groups(*answers(seed, 2), N, most=3, seed=seed)
    assert found.count == 2
    assert adjusted_rand_score(TRUE, found.of) >= 0.9
    shares = agreement(found.maps)
    assert np.all(np.diag(shares) == 1.0)
    assert shares[0, 1] < 0.8
    assert found.losses[1] == found.losses.min()


@pytest.mark.parametrize("seed", [3, 4])
def test_people_of_one_world_are_not_split(seed: int) -> None:
    found = find_groups(*answers(seed, 1), N, most=3, seed=seed)
    assert found.count == 1
    assert set(found.of.tolist()) == {0}


def test_names_matter_where_they_are_those_of_worlds_and_not_where_they_are_not() -> None:
    rows, people = answers(5, 2)
    true = compare_names(rows, people, TRUE.tolist(), N, shuffles=19)
    assert (true.p, true.gain > 0.02) == (0.05, True)
    false = compare_names(rows, people, [person // (PEOPLE // 2) for person in range(PEOPLE)], N, shuffles=19)
    assert false.p > 0.2


def test_too_few_answers_are_a_sentence() -> None:
    rows, people = answers(6, 1)
    with pytest.raises(SalmonError, match="at least two people with 20 answers each"):
        find_groups(rows[:30], people[:30], N)


def test_the_command_writes_who_is_in_which_group_and_a_map_for_each(tmp_path: Path) -> None:
    rows, people = answers(1, 2)
    lines = ["head,left,right,winner,puid"]
    lines += [
        f"{head},{won},{lost},{won},p{person:02d}" for (head, won, lost), person in zip(rows, people, strict=True)
    ]
    (tmp_path / "responses.csv").write_text("\n".join(lines))
    (tmp_path / "named.csv").write_text(
        "participant,group\n" + "".join(f"p{person:02d},{'ab'[person % 2]}\n" for person in range(PEOPLE))
    )

    def run(*arguments: str) -> str:
        done = subprocess.run(
            (sys.executable, "-m", "salmon", "groups", "responses.csv", *arguments),
            cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY), "PATH": ""}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("--most", "2")
    assert "They fall into 2 groups." in said
    of = {
        row["participant"]: row["group"] for row in csv.DictReader((tmp_path / "groups.csv").read_text().splitlines())
    }
    assert len({of[f"p{person:02d}"] for person in range(0, PEOPLE, 2)}) == 1
    assert len(set(of.values())) == 2
    assert (tmp_path / "groups-1.svg").read_text().startswith("<?xml")
    assert (tmp_path / "groups-2.png").read_bytes().startswith(b"\x89PNG")
    assert "The named groups see differently" in run("--named", "named.csv", "--shuffles", "19")
