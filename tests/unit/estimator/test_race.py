"""The interval of a race holds at all looks at once, its maps never see what they are judged on, and
sentences say what can be said.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammainc, gammaln

from salmon.errors import SalmonError
from salmon.estimator.race import (
    GROUPS,
    Lead,
    Race,
    begin,
    between_people,
    boundary,
    confidence_sequence,
    judge,
    log_mixture,
    run_stage,
    standing,
)
from salmon.simulate import SimulatedParticipant, random_world
from salmon.spec import parse_spec
from salmon.study_report import read_study, sections_of
from tests.program import REPOSITORY

N = 12


def race(seed: int, answers: int, dimensions: tuple[int, ...] = (2, 2)) -> Race:
    """A race between random queries in a world of two dimensions; every fourth answer is held out."""
    rng = np.random.default_rng(seed)
    person = SimulatedParticipant(random_world(N, 2, seed))
    triplets, _ = person.react_all(person.world.random_queries(answers, rng), rng)
    people = np.arange(answers) // 20
    samplers = rng.integers(len(dimensions), size=people[-1] + 1)[people]
    names = tuple("ABC"[: len(dimensions)])
    return Race(names, dimensions, triplets, samplers, people, np.arange(answers) % 4 == 0, N, seed)


@pytest.mark.parametrize(("s", "v"), [(0.5, 2.0), (5.0, 10.0), (20.0, 100.0), (35.0, 100.0)])
def test_the_mixture_is_the_integral_over_its_prior(s: float, v: float) -> None:
    rho = 10.5

    def prior(rate: float) -> float:
        return (1 - rate) ** (rho - 1) * np.exp(-rho * (1 - rate))

    mixed = quad(lambda rate: prior(rate) * np.exp(rate * s + v * (np.log1p(-rate) + rate)), 0, 1)[0]
    lead = rho * np.log(rho) - gammaln(rho) - np.log(gammainc(rho, rho))
    assert log_mixture(s, v, rho, lead) == pytest.approx(np.log(mixed / quad(prior, 0, 1)[0]), abs=1e-8)


def test_the_boundary_grows_more_slowly_than_what_it_bounds() -> None:
    v = np.array([0.0, 1.0, 10.0, 100.0, 1000.0, 1e4])
    found = boundary(v, 0.025)
    assert np.all(np.diff(found) > 0)
    assert found[3] == pytest.approx(33.586, abs=0.01)
    assert found[-1] / 1e4 < 0.04


def test_an_interval_that_is_looked_at_after_every_answer_hardly_ever_misses() -> None:
    """The chance of a difference depends on the past here: who is behind catches up."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(300):
        state, total, truth, rows = 0.0, 0.0, [], []
        for k in range(600):
            chance = 0.5 - 0.1 * np.tanh(state / 10)
            y = float(rng.choice([0, 1, -1], p=[0.7, 0.3 * chance, 0.3 * (1 - chance)]))
            total += 0.3 * (2 * chance - 1)
            state += y
            rows.append(y)
            truth.append(total / (k + 1))
        _, low, high = confidence_sequence(np.array(rows))
        missed += bool(((np.array(truth) < low) | (np.array(truth) > high)).any())
    assert missed <= 15


def test_later_answers_never_change_what_was_judged() -> None:
    whole = race(1, 1200)
    short = replace(
        whole,
        triplets=whole.triplets[:700],
        samplers=whole.samplers[:700],
        held_out=whole.held_out[:700],
        people=whole.people[:700],
    )
    states = [begin(each) for each in (whole, short)]
    for place, each in enumerate((whole, short)):
        for stage in each.stages():
            states[place] = run_stage(each, stage, states[place])
    count = len(states[1].hits)
    assert 50 < count < len(states[0].hits)
    assert np.array_equal(states[0].hits[:count], states[1].hits)
    assert np.array_equal(states[0].without[:count], states[1].without)


def test_a_map_sees_only_answers_from_before_and_as_many_as_the_others() -> None:
    one = race(2, 900)
    for stage in one.stages():
        first = stage.answers[0]
        fewest = min(int((one.samplers[:first] == place).sum()) for place in range(2))
        assert N <= stage.learned <= fewest
        assert all(one.held_out[place] for place in stage.answers)


def test_a_dimension_too_few_is_found_behind() -> None:
    found = judge(race(6, 6000, dimensions=(2, 1)))
    assert found.leads[0].ahead == "A", found.leads[0].sentence
    assert found.accuracy[0] > found.accuracy[1]
    assert found.leads[0].sentence.startswith("A is ahead of B by ")
    assert found.leads[0].sentence.endswith(", however often you look.")


def test_of_three_samplers_every_pair_is_compared_at_a_wider_interval() -> None:
    three = race(6, 1500, dimensions=(2, 2, 2))
    state = begin(three)
    for stage in three.stages():
        state = run_stage(three, stage, state)
    found = standing(three, state)
    assert [(lead.first, lead.second) for lead in found.leads] == [("A", "B"), ("A", "C"), ("B", "C")]
    between = between_people(state.without)
    two = confidence_sequence(state.hits[:, 0] - state.hits[:, 1], between[:, 0] + between[:, 1])
    assert found.leads[0].high - found.leads[0].low > two[2][-1] - two[1][-1]


def test_the_jackknife_finds_the_variance_between_groups_of_people() -> None:
    """Of a mean over groups of independent people: on the whole, what a jackknife
    finds is the variance of that mean.
    """
    rng = np.random.default_rng(4)
    found: list[float] = []
    for _ in range(400):
        of_group = rng.normal(size=GROUPS)
        without = ((of_group.sum() - of_group) / (GROUPS - 1)).reshape(1, 1, GROUPS)
        found.append(float(between_people(without)[0, 0]))
    assert np.mean(found) == pytest.approx(1 / GROUPS, rel=0.1)


def test_what_varies_between_people_widens_the_interval() -> None:
    rng = np.random.default_rng(5)
    differences = rng.choice([-1.0, 0.0, 1.0], size=500)
    alone, wider = (confidence_sequence(differences, between) for between in (None, np.full(500, 200.0)))
    assert np.array_equal(alone[0], wider[0])
    assert np.all(wider[2] - wider[1] >= alone[2] - alone[1])
    assert wider[2][-1] - wider[1][-1] > 1.1 * (alone[2][-1] - alone[1][-1])


def test_with_few_participants_nothing_is_stated() -> None:
    few = race(6, 600, dimensions=(2, 1))
    few = replace(few, people=few.people % 7)
    found = judge(few)
    assert found.judged > 50
    assert (found.leads[0].ahead, found.leads[0].low, found.leads[0].high) == ("", -1.0, 1.0)


def test_before_anything_is_judged_nothing_is_stated() -> None:
    found = judge(race(7, 15))
    assert (found.judged, found.leads[0].ahead) == (0, "")
    assert found.leads[0].sentence.startswith("No difference between A and B can be stated yet")


@pytest.mark.parametrize(
    ("lead", "low", "high", "sentence"),
    [
        (0.018, 0.004, 0.032, "A is ahead of B by 1.8 points (95 %: 0.4 to 3.2), however often you look."),
        (-0.018, -0.032, -0.004, "B is ahead of A by 1.8 points (95 %: 0.4 to 3.2), however often you look."),
        (0.005, -0.012, 0.022, "No difference can be stated yet: A is ahead of B by 0.5 points (95 %: −1.2 to 2.2)."),
    ],
)
def test_what_can_be_said(lead: float, low: float, high: float, sentence: str) -> None:
    assert Lead("A", "B", lead, low, high, 10, ()).sentence == sentence


def test_one_sampler_alone_is_no_race() -> None:
    with pytest.raises(SalmonError, match="at least two samplers"):
        race(8, 100, dimensions=(2,))


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of answers of two samplers that raced, as the export writes it."""
    one = race(6, 1200)
    lines = ["head,left,right,winner,loser,sampler,trial_type,puid,rt_ms"]
    for place, (head, winner, loser) in enumerate(one.triplets.tolist()):
        kind = "held_out" if one.held_out[place] else "random"
        sampler = "AB"[one.samplers[place]]
        lines.append(f"{head},{winner},{loser},{winner},{loser},{sampler},{kind},p{place // 20},900")
    path = tmp_path_factory.mktemp("race") / "responses.csv"
    path.write_text("\n".join(lines))
    return path


def test_the_command_says_where_a_race_stands(raced: Path) -> None:
    done = run("race", str(raced))
    found = judge(replace(race(6, 1200), seed=0))
    assert done.stdout.splitlines()[0] == found.leads[0].sentence
    assert f"Judged on {found.judged:,} of 300 held-out answers" in done.stdout
    whole = json.loads(run("race", str(raced), "--json").stdout)
    assert whole["leads"][0]["course"][-1][0] == found.judged


def test_a_file_without_held_out_answers_is_refused_with_the_key_to_write(raced: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(raced.read_text().replace("held_out", "random"))
    done = run("race", str(other), check=False)
    assert done.returncode == 1
    assert "No answer of the file was held out" in done.stderr
    assert "race: 20%" in done.stderr


def test_the_report_of_a_race_says_who_is_ahead(raced: Path) -> None:
    spec = parse_spec(
        f"targets: {N}\nsamplers: {{A: {{class: Random}}, B: {{class: Random}}}}\nsampling: {{race: 25%}}\n"
    )
    study = replace(read_study(raced.read_bytes(), "responses.csv"), spec=spec.spec)
    (section,) = [part for part in sections_of(study) if part.title == "Sampler race"]
    assert section.paragraphs[0] == judge(replace(race(6, 1200), seed=0)).leads[0].sentence
    assert section.table[1][:2] == ("A", f"{int((race(6, 1200).samplers == 0).sum()):,}")


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "salmon", *arguments), cwd=REPOSITORY, capture_output=True, text=True, check=check
    )
