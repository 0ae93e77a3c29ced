"""Compare samplers while an experiment runs: a race, whose verdict stays valid however often one looks.

Each participant meets one sampler, and some trials of everybody are random queries that are held out: the maps of all samplers
predict such an answer before any of them learns it. The maps are fitted by one estimator to equally many answers each, so that
neither a sampler's own fit nor a larger number of participants decides.

With x = 1, ½ or 0 for an answer that a map predicts, ties or misses, let y be the difference of x between two maps. Its mean over T
held-out answers is the lead of the first map, and the interval of the lead is a confidence sequence: with a probability of 95 % it
holds the mean of the expected differences at every T at once. Half its width is u(V)/T, where V = Σ y² is the number of answers about
which the maps disagree, and u is the gamma-exponential mixture boundary of scale 1 (Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", Annals of Statistics 2021, proposition 9; theorem 4 with a prediction of 0 for every
difference). Nothing is assumed but that each answer is predicted by maps of earlier ones: accuracies may grow, and answers of one
person may be alike. That such an interval fits forecasts that are compared step by step was shown by Choe and Ramdas ("Comparing
sequential forecasters", Operations Research 2024).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln

from salmon.answer_files.answer_table import AnswerTable
from salmon.errors import SalmonError
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
GROWTH = 1.1
#: The boundary is narrowest where the maps have disagreed about so many answers.
_NARROWEST_AT = 100.0
#: Points of the course of a lead that are kept for a figure.
_SHOWN = 60


@dataclass(frozen=True)
class Race:
    """The answers to the queries of `names`, in the order in which they came, with the dimensions of each one's map.

    `triplets` (m, 3); `samplers` (m,) counts into `names`; `held_out` (m,) where the query was drawn to compare them.
    """

    names: tuple[str, ...]
    dimensions: tuple[int, ...]
    triplets: Triplets
    samplers: Ints
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
    """The held-out answers, by their places, that are predicted by maps of the first `learned` answers of each sampler."""

    learned: int
    answers: tuple[int, ...]


@dataclass(frozen=True)
class RaceState:
    """The race up to a stage: the maps, and `hits` (T, samplers), 1, ½ or 0 for each held-out answer."""

    hits: Floats
    maps: tuple[Coordinates, ...] = ()
    learned: int = 0


@dataclass(frozen=True)
class Lead:
    """By how much the first of two samplers is ahead in held-out accuracy, with an interval that is valid at every look.

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
    """Where a race stands: `judged` held-out answers, `learned` answers in each map, and the accuracy of each sampler's maps."""

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
        table.held_out[used],
        table.n,
        seed,
    )


def begin(race: Race) -> RaceState:
    """Return the state of a race before its first stage."""
    return RaceState(np.zeros((0, len(race.names))))


def run_stage(race: Race, stage: RaceStage, before: RaceState) -> RaceState:
    """Refit the maps to the first answers of each sampler, and judge the held-out answers of the stage by them."""
    maps: list[Coordinates] = []
    for place, d in enumerate(race.dimensions):
        rows = race.triplets[race.samplers == place][: stage.learned]
        found = fit(
            rows, race.n, d, noise=RECOMMENDED_NOISE, ridge=RECOMMENDED_RIDGE, seed=race.seed,
            start=before.maps[place] if before.maps else None, n_starts=2 if not before.maps else None, tolerance=1e-5,
        )  # fmt: skip
        maps.append(found.coordinates)
    judged = race.triplets[list(stage.answers)]
    hits = np.stack([_hits(coordinates, judged) for coordinates in maps], axis=1)
    return RaceState(np.concatenate([before.hits, hits]), tuple(maps), stage.learned)


def standing(race: Race, state: RaceState, alpha: float = ALPHA) -> Standing:
    """Return what can be said now; the chance of a wrong statement is divided among all pairs."""
    pairs = list(combinations(range(len(race.names)), 2))
    leads = tuple(
        _lead(race.names[one], race.names[other], state.hits[:, one] - state.hits[:, other], alpha / len(pairs))
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


def confidence_sequence(differences: Floats, alpha: float = ALPHA) -> tuple[Floats, Floats, Floats]:
    """Return (mean, low, high), each (T,): after every difference in [−1, 1], the mean so far with its interval.

    All T intervals hold their means of expected differences at once with a probability of at least 1 − alpha.
    """
    counts = np.arange(1, len(differences) + 1)
    mean = np.cumsum(differences) / counts
    half = boundary(np.cumsum(differences**2), alpha / 2) / counts
    return mean, np.maximum(-1, mean - half), np.minimum(1, mean + half)


def boundary(v: Floats, alpha: float) -> Floats:
    """Return u(v) for each v ≥ 0: a sum that is sub-exponential of scale 1 exceeds it at any time with a chance of alpha at most."""
    values, places = np.unique(np.asarray(v, dtype=np.float64), return_inverse=True)
    return np.array([_boundary(float(value), alpha) for value in values])[places]


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
    return float(brentq(excess, 0.0, high, xtol=1e-9))


def log_mixture(s: float, v: float, rho: float, lead: float) -> float:
    """Return log m(s, v), the gamma-exponential mixture of exp(λs − v(−log(1 − λ) − λ)) over λ in [0, 1); `lead` is its constant."""
    a = v + rho
    return float(lead + gammaln(a) + np.log(gammainc(a, s + a)) - a * np.log(s + a) + s + v)


def _lead(first: str, second: str, differences: Floats, alpha: float) -> Lead:
    if not len(differences):
        return Lead(first, second, 0.0, -1.0, 1.0, 0, ())
    mean, low, high = confidence_sequence(differences, alpha)
    looks = np.unique(np.linspace(1, len(differences), min(_SHOWN, len(differences))).astype(int)) - 1
    course = tuple((int(k) + 1, float(mean[k]), float(low[k]), float(high[k])) for k in looks)
    return Lead(first, second, *course[-1][1:], int(np.count_nonzero(differences)), course)


def _hits(coordinates: Coordinates, triplets: Triplets) -> Floats:
    d2_winner, d2_loser = compared_distances(coordinates, triplets)
    return np.where(d2_winner == d2_loser, 0.5, d2_winner < d2_loser).astype(np.float64)


def _points(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")
