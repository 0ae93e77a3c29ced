"""Compare samplers while an experiment runs: a race, whose verdict stays valid however often one looks.

Each participant meets one sampler, and some trials of everybody are random queries that are held out: the maps of all
samplers predict such an answer before any of them learns it. The maps are fitted by one estimator to equally many
answers each, so that neither a sampler's own fit nor a larger number of participants decides.

With x = 1, ½ or 0 for an answer that a map predicts, ties or misses, let y be the difference of x between two maps. Its
mean over T held-out answers is the lead of the first sampler. Two things keep it from what other participants would
bring:

* which answers were held out: V = Σ y², the number of answers about which the maps disagree;
* from whose answers the maps were learned: as long as they last, maps that are better by chance are ahead at every
  held-out answer. J is the variance of T times the lead between participants, by a jackknife that leaves out one of
  GROUPS groups of the participants of a sampler at a time. It compares expected hits, by the answers' probabilities in
  a map of all answers, because the noise of the held-out answers is in V already. A jackknife overestimates a variance
  rather than not (Efron and Stein 1981).

Half the width of the interval is u(V + J)/T, where u is the gamma-exponential mixture boundary of scale 1 (Howard,
Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics
2021, proposition 9; theorem 4 with a prediction of 0 for every difference). With J = 0 the interval would hold the mean
of the expected differences between these very maps at every T at once, whatever the answers depend on; that is a
confidence sequence as of Choe and Ramdas ("Comparing sequential forecasters", Operations Research 2024). With J it
speaks of the samplers, and is valid as far as J is right: `benchmarks/race.py` prints how often two samplers that are
one are told apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln

from salmon.answer_files.answer_table import AnswerTable
from salmon.errors import SalmonError
from salmon.estimator.cross_validation import answer_losses
from salmon.estimator.report import Progress, silent
from salmon.geometry import Coordinates
from salmon.learning.noise_learning import RECOMMENDED_NOISE, RECOMMENDED_RIDGE
from salmon.learning.objective import Triplets, compared_distances
from salmon.learning.refit import fit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: The chance of a wrong statement about any pair of samplers, at any time.
ALPHA = 0.05
#: Maps are refitted when each sampler has so many times as many answers.
GROWTH = 1.25
#: Groups of participants of which one at a time is left out; with fewer participants of a sampler nothing is stated.
GROUPS = 8
#: The boundary is narrowest where the maps have disagreed about so many answers.
_NARROWEST_AT = 100.0
#: Points of the course of a lead that are kept for a figure.
_SHOWN = 60


@dataclass(frozen=True)
class Race:
    """The answers to the queries of `names`, in the order in which they came, with the dimensions of each one's map.

    `triplets` (m, 3); `samplers` (m,) counts into `names`; `people` (m,) numbers who answered; `held_out` (m,) where
    the query was drawn to compare them.
    """

    names: tuple[str, ...]
    dimensions: tuple[int, ...]
    triplets: Triplets
    samplers: Ints
    people: Ints
    held_out: Bools
    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise SalmonError("A race needs at least two samplers.")

    def stages(self) -> tuple["RaceStage", ...]:
        """Return the stages of the race so far; later answers add stages and never change those that are over.

        A map has at least as many answers as there are targets before it predicts anything.
        """
        of = np.arange(len(self.names))
        before = np.vstack([np.zeros((1, len(of)), np.int64), np.cumsum(self.samplers[:, None] == of, axis=0)[:-1]])
        fewest = before.min(axis=1)
        judged = np.flatnonzero(self.held_out & (fewest >= self.n))
        stages: list[RaceStage] = []
        learned = self.n
        while len(judged):
            grown = max(learned + 1, int(np.ceil(GROWTH * learned)))
            own = judged[fewest[judged] < grown]
            if len(own):
                stages.append(RaceStage(learned, tuple(map(int, own))))
            judged, learned = judged[len(own) :], grown
        return tuple(stages)


@dataclass(frozen=True)
class RaceStage:
    """The held-out answers, by their places, that are predicted by maps of the first
    `learned` answers of each sampler.
    """

    learned: int
    answers: tuple[int, ...]


@dataclass(frozen=True)
class RaceState:
    """The race up to a stage: the maps, and `hits` (T, samplers), 1, ½ or 0 for each held-out answer.

    `without` (T, samplers, GROUPS) are the expected hits, less ½, of maps without one group of the sampler's
    participants. `pooled` is the map of all answers, by which they are expected.
    """

    hits: Floats
    without: Floats
    maps: tuple[Coordinates, ...] = ()
    pooled: Coordinates | None = None
    learned: int = 0


@dataclass(frozen=True)
class Lead:
    """By how much the first of two samplers is ahead in held-out accuracy, with an
    interval that is valid at every look.

    `course` holds (held-out answers, lead, low, high) at some of the looks, up to the present.
    """

    first: str
    second: str
    lead: float
    low: float
    high: float
    disagreements: int
    course: tuple[tuple[int, float, float, float], ...]

    @property
    def ahead(self) -> str:
        """Return the sampler that is stated to be ahead; empty where nothing can be stated yet."""
        return self.first if self.low > 0 else self.second if self.high < 0 else ""

    @property
    def sentence(self) -> str:
        """Return what can be said of the two, in one sentence."""
        if self.lead >= 0:
            leader, other, lead, low, high = self.first, self.second, self.lead, self.low, self.high
        else:
            leader, other, lead, low, high = self.second, self.first, -self.lead, -self.high, -self.low
        interval = f"{abs(100 * lead):.1f} points (95 %: {_points(low)} to {_points(high)})"
        if self.ahead:
            return f"{leader} is ahead of {other} by {interval}, however often you look."
        if lead == 0:
            return f"No difference between {leader} and {other} can be stated yet (95 %: {_points(low)} to {_points(high)} points)."
        return f"No difference can be stated yet: {leader} is ahead of {other} by {interval}."


@dataclass(frozen=True)
class Standing:
    """Where a race stands: `judged` held-out answers, `learned` answers in each map, and the
    accuracy of each sampler's maps.
    """

    names: tuple[str, ...]
    answers: tuple[int, ...]
    held_out: int
    judged: int
    learned: int
    accuracy: tuple[float, ...]
    leads: tuple[Lead, ...]


def race_of(table: AnswerTable, names: Sequence[str], dimensions: Mapping[str, int], seed: int = 0) -> Race:
    """Return the race of a file of answers in the order of its rows; answers of other samplers are left out."""
    if not table.held_out.any():
        raise SalmonError(
            "No answer of the file was held out to compare samplers.",
            hint="Samplers race where the experiment's file says sampling: {race: 20%}.",
        )
    used = np.isin(table.samplers, names) & ~table.test
    return Race(
        tuple(names),
        tuple(dimensions.get(name, 2) for name in names),
        table.triplets[used],
        np.array([names.index(name) for name, kept in zip(table.samplers, used, strict=True) if kept], dtype=np.int64),
        _numbered(table.participants)[used],
        table.held_out[used],
        table.n,
        seed,
    )


def begin(race: Race) -> RaceState:
    """Return the state of a race before its first stage."""
    count = len(race.names)
    return RaceState(np.zeros((0, count)), np.zeros((0, count, GROUPS)))


def run_stage(race: Race, stage: RaceStage, before: RaceState) -> RaceState:
    """Refit the maps to the first answers of each sampler, and judge the held-out answers of the stage by them."""
    judged = race.triplets[list(stage.answers)]
    rows = [race.triplets[race.samplers == place][: stage.learned] for place in range(len(race.names))]
    pooled = _fit(race, np.concatenate(rows), max(race.dimensions), before.pooled)
    expected = np.exp(-answer_losses(pooled, judged, RECOMMENDED_NOISE)) - 0.5
    maps: list[Coordinates] = []
    without: list[Floats] = []
    for place, d in enumerate(race.dimensions):
        own = _fit(race, rows[place], d, before.maps[place] if before.maps else None)
        maps.append(own)
        # People are numbered as they come, so that later ones leave the groups of the others as they are.
        _, number = np.unique(race.people[race.samplers == place][: stage.learned], return_inverse=True)
        group = number % GROUPS
        left = [_fit(race, rows[place][group != left_out], d, own, polish=True) for left_out in range(GROUPS)]
        without.append(np.stack([expected * (2 * _hits(each, judged) - 1) for each in left], axis=1))
    hits = np.stack([_hits(coordinates, judged) for coordinates in maps], axis=1)
    return RaceState(
        np.concatenate([before.hits, hits]),
        np.concatenate([before.without, np.stack(without, axis=1)]),
        tuple(maps),
        pooled,
        stage.learned,
    )


def standing(race: Race, state: RaceState, alpha: float = ALPHA) -> Standing:
    """Return what can be said now; the chance of a wrong statement is divided among all pairs."""
    pairs = list(combinations(range(len(race.names)), 2))
    between = between_people(state.without)
    enough = all(len(np.unique(race.people[race.samplers == place])) >= GROUPS for place in range(len(race.names)))
    leads = tuple(
        _lead(
            race.names[one],
            race.names[other],
            state.hits[:, one] - state.hits[:, other],
            between[:, one] + between[:, other] if enough else np.full(len(between), np.inf),
            alpha / len(pairs),
        )
        for one, other in pairs
    )
    judged = len(state.hits)
    return Standing(
        race.names,
        tuple(np.bincount(race.samplers, minlength=len(race.names)).tolist()),
        int(race.held_out.sum()),
        judged,
        state.learned,
        tuple(state.hits.mean(axis=0).tolist()) if judged else tuple(float("nan") for _ in race.names),
        leads,
    )


def judge(race: Race, progress: Progress = silent) -> Standing:
    """Run all stages of a race and return where it stands."""
    state, stages = begin(race), race.stages()
    for done, stage in enumerate(stages, 1):
        state = run_stage(race, stage, state)
        progress("refitting the maps of all samplers", len(stages), done)
    return standing(race, state)


def between_people(without: Floats) -> Floats:
    """Return (T, samplers) the variance, between participants, of the sum of the first T hits of each sampler's maps.

    The jackknife of groups: (G − 1)/G · Σ (sum without group g − their mean)².
    """
    sums = np.cumsum(without, axis=0)
    apart = sums - sums.mean(axis=2, keepdims=True)
    return (GROUPS - 1) / GROUPS * (apart**2).sum(axis=2)


def confidence_sequence(
    differences: Floats, between: Floats | None = None, alpha: float = ALPHA
) -> tuple[Floats, Floats, Floats]:
    """Return (mean, low, high), each (T,): after every difference in [−1, 1], the mean so far with its interval.

    Without a variance `between` people (T,), all T intervals hold their means of expected differences at once with a
    probability of at least 1 − alpha.
    """
    counts = np.arange(1, len(differences) + 1)
    mean = np.cumsum(differences) / counts
    spread = np.cumsum(differences**2) + (0.0 if between is None else between)
    known = np.isfinite(spread)
    half = np.ones(len(differences))
    half[known] = boundary(spread[known], alpha / 2) / counts[known]
    half[~known] = 2.0
    return mean, np.maximum(-1, mean - half), np.minimum(1, mean + half)


def boundary(v: Floats, alpha: float) -> Floats:
    """Return u(v) for each v ≥ 0: a sum that is sub-exponential of scale 1 exceeds it at any time
    with a chance of alpha at most.
    """
    values, places = np.unique(np.asarray(v, dtype=np.float64), return_inverse=True)
    return np.array([_boundary(float(value), alpha) for value in values], dtype=np.float64)[places]


@lru_cache(maxsize=100_000)
def _boundary(v: float, alpha: float) -> float:
    """Return the s at which the mixture supermartingale m(s, v) reaches 1/alpha."""
    log_odds = np.log(1 / alpha)
    rho = _NARROWEST_AT / (2 * log_odds + np.log(1 + 2 * log_odds))
    lead = rho * np.log(rho) - gammaln(rho) - np.log(gammainc(rho, rho))

    def excess(s: float) -> float:
        return float(log_mixture(s, v, rho, lead) - log_odds)

    high = 1.0
    while excess(high) < 0:
        high *= 2
    return cast("float", brentq(excess, 0.0, high, xtol=1e-9))


def log_mixture(s: float, v: float, rho: float, lead: float) -> float:
    """Return log m(s, v), the gamma-exponential mixture of exp(λs − v(−log(1 − λ) − λ)) over λ in
    [0, 1); `lead` is its constant.
    """
    a = v + rho
    return float(lead + gammaln(a) + np.log(gammainc(a, s + a)) - a * np.log(s + a) + s + v)


def _fit(race: Race, rows: Triplets, d: int, start: Coordinates | None, *, polish: bool = False) -> Coordinates:
    """Return the map of some answers; `polish` where it lies near the start."""
    starts = 0 if polish else 2
    found = fit(
        rows, race.n, d, noise=RECOMMENDED_NOISE, ridge=RECOMMENDED_RIDGE, seed=race.seed,
        start=start, n_starts=starts, tolerance=1e-5,
    )  # fmt: skip
    return found.coordinates


def _lead(first: str, second: str, differences: Floats, between: Floats, alpha: float) -> Lead:
    if not len(differences):
        return Lead(first, second, 0.0, -1.0, 1.0, 0, ())
    mean, low, high = confidence_sequence(differences, between, alpha)
    looks = np.unique(np.linspace(1, len(differences), min(_SHOWN, len(differences))).astype(int)) - 1
    course = tuple((int(k) + 1, float(mean[k]), float(low[k]), float(high[k])) for k in looks)
    return Lead(first, second, *course[-1][1:], int(np.count_nonzero(differences)), course)


def _numbered(names: Sequence[str]) -> Ints:
    """Return a number for each name, in the order of their first appearance; answers of
    nobody count each for themselves.
    """
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    alone = set(names) == {""}
    return np.array([place if alone else number[name] for place, name in enumerate(names)], dtype=np.int64)


def _hits(coordinates: Coordinates, triplets: Triplets) -> Floats:
    d2_winner, d2_loser = compared_distances(coordinates, triplets)
    return np.where(d2_winner == d2_loser, 0.5, d2_winner < d2_loser).astype(np.float64)


def _points(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")
