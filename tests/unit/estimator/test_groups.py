"""People of two worlds are told apart, people of one are not, and names that mean something are found to."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from salmon.errors import SalmonError
from salmon.estimator.groups import (
    GroupSearch,
    agreement,
    compare_names,
    count_candidates,
    find_groups,
    procrustes_agreement,
    procrustes_residuals,
)
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


def searched(seed: int, worlds: int, most: int = 2) -> GroupSearch:
    search = GroupSearch.begin(*answers(seed, worlds), N, 2, most=most, seed=seed)
    for candidate in search.candidates:
        search = search.judge(candidate)
    return search


def test_maps_that_were_turned_mirrored_and_stretched_agree_wholly() -> None:
    rng = np.random.default_rng(1)
    one = rng.normal(size=(N, 2))
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    maps = np.stack([one, 3 * one @ turn + 5, rng.normal(size=(N, 2))])
    found = procrustes_agreement(maps)
    assert found[0, 1] == pytest.approx(1.0)
    assert found[0, 2] < 0.7
    assert procrustes_residuals(maps) == pytest.approx(procrustes_residuals(maps).T)


def test_maps_of_two_worlds_differ_more_than_those_of_shuffled_names() -> None:
    search = searched(1, 2)
    found = search.conclude()
    test = search.test(found).shuffle(10).shuffle(9)
    assert test.shuffles == 19
    assert test.p[0, 1] == test.p[1, 0] == pytest.approx(0.05)
    assert np.all(np.diag(test.p) == 1.0)
    assert np.array_equal(test.as_far, search.test(found).shuffle(19).as_far), "steps of any size give the same"


def test_groups_that_were_forced_on_people_of_one_world_are_not_found_to_differ_too_often() -> None:
    """Half of the answers form the groups and the other half is compared; on one half
    alone every such pair would differ.
    """
    small = []
    for seed in range(20):
        search = searched(100 + seed, 1, most=1)
        of, maps = search.world.split(search.rows, search.given_by, search.shared, 2, 3.0)
        forced = replace(search.conclude(), of=of, maps=maps, pull=3.0)
        small.append(search.test(forced).shuffle(19).p[0, 1] <= 0.05)
    assert sum(small) <= 4


def test_each_person_gets_a_map_that_is_nearer_to_those_of_the_own_group() -> None:
    search = searched(2, 2)
    maps, pull = search.personal_maps()
    assert maps.shape == (PEOPLE, N, 2)
    assert pull in {0.3, 3.0, 30.0}
    alike = procrustes_agreement(maps)
    same = (TRUE[:, None] == TRUE) & ~np.eye(PEOPLE, dtype=bool)
    assert alike[same].mean() > alike[TRUE[:, None] != TRUE].mean() + 0.05


def test_people_of_one_world_keep_the_shared_map() -> None:
    search = searched(3, 1)
    maps, pull = search.personal_maps()
    assert pull >= 3.0
    assert procrustes_agreement(maps).min() > 0.95


def test_the_number_of_candidates_is_known_before_the_search() -> None:
    assert len(searched(1, 2).candidates) == count_candidates(PEOPLE, 2) == 4
    assert count_candidates(1, 4) == 1
