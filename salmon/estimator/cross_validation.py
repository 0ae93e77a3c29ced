"""Judge fits by held-out answers, choose noise models and dimensions by them, and estimate the noise ceiling.

Answers about the same three targets always stay together: a query asked twice, once fitted and once judged, would be
judged by its own answer. Accuracy is estimated on answers to random queries only: an active sampler asks what its model
is least sure of, so accuracy on its answers says nothing about other queries. All candidates are judged on the same
folds. The noise ceiling is how well any embedding could predict, because people who get the same query again do not
always agree.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from salmon.errors import TripletError, listed
from salmon.geometry import Coordinates
from salmon.learning import Triplets, fit
from salmon.learning.features import Features, learn_prior
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.objective import compared_distances
from salmon.noise import NoiseModel, PowerTSTE, noise_model
from salmon.parallel import Executor

#: (k, lapse) tried on power t-STE: from the heavy tails that suit people to the light ones of nearly exact answers.
POWER_CANDIDATES: tuple[tuple[float, float], ...] = (
    *((1.0, 0.0), (1.0, 0.05), (0.85, 0.07), (0.75, 0.1)),
    *((1.5, 0.03), (2.0, 0.0), (2.0, 0.05), (3.0, 0.03)),
)
#: Lapses tried on every other noise model.
LAPSE_CANDIDATES = (0.0, 0.02, 0.05, 0.07, 0.1, 0.15)
#: Folds in which candidates are compared.
FOLDS = 5
#: Folds and ridge of the held-out accuracy, which is the same on every page and in `salmon fit`.
FOLDS_JUDGED = 10
RIDGE = 0.03
#: The recommended noise model, whose exponent and lapse every fit learns.
RECOMMENDED = "PowerTSTE"
#: The lapse under which noise models are judged that have no recommended one.
LAPSE = 0.05


def triple_groups(triplets: Triplets) -> NDArray[np.int64]:
    """Return (m,) a number for each unordered set of three targets, equal for answers about the same three."""
    if not len(triplets):
        return np.zeros(0, dtype=np.int64)
    low, middle, high = np.sort(triplets, axis=1).astype(np.int64).T
    # One number a set sorts many times faster than three columns.
    n = int(high.max()) + 1
    _, groups = np.unique((low * n + middle) * n + high, return_inverse=True)
    return groups.astype(np.int64)


def held_out_split(triplets: Triplets, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (m,) True for about `share` of the answers: whole groups, at random, at
    least one and never all of them.
    """
    groups = triple_groups(triplets)
    count = int(groups.max(initial=-1)) + 1
    if count < 2:
        raise TripletError(
            "All answers are about the same three targets: none can be held out.", hint="Fit without early stopping."
        )
    held = rng.permutation(count)[: int(np.clip(round(share * count), 1, count - 1))]
    return np.isin(groups, held)


def grouped_folds(triplets: Triplets, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (m,) the fold 0 … folds − 1 in which each answer is held out; a group is never divided.

    There are fewer folds if there are fewer groups.
    """
    groups = triple_groups(triplets)
    count = int(groups.max(initial=-1)) + 1
    return (rng.permutation(count) % max(1, min(folds, count)))[groups]


def noise_candidates(model: NoiseModel) -> tuple[NoiseModel, ...]:
    """Return the models to choose from, the given one first: values of (k, lapse) for power t-STE, of the lapse for
    others.
    """
    if isinstance(model, PowerTSTE):
        others: tuple[NoiseModel, ...] = tuple(PowerTSTE(k=k, lapse=lapse) for k, lapse in POWER_CANDIDATES)
    else:
        others = tuple(noise_model(model, lapse=lapse) for lapse in LAPSE_CANDIDATES)
    return tuple(dict.fromkeys((model, *others)))


def choose_noise(
    triplets: Triplets,
    n: int,
    d: int,
    candidates: tuple[NoiseModel, ...],
    *,
    ridge: float,
    seed: int,
    max_iter: int = 500,
    executor: Executor | None = None,
) -> tuple[NoiseModel, dict[NoiseModel, float]]:
    """Return the candidate under which held-out answers are likeliest, and the log-loss (nats) of every candidate.

    Each answer is held out once. The first candidate is kept unless the best one beats it by more than the standard
    error of their difference: few answers cannot tell models apart, and choosing between them only adds noise. Each
    fit starts from the one before it, because the candidates differ little and so do their embeddings.
    """
    folds = grouped_folds(triplets, FOLDS, np.random.default_rng(seed))
    losses = {model: np.zeros(len(triplets)) for model in candidates}
    for fold in range(int(folds.max()) + 1):
        held_out, start = folds == fold, None
        for model in candidates:
            found = fit(
                triplets[~held_out], n, d, noise=model, ridge=ridge, start=start, n_starts=2 if start is None else 0,
                max_iter=max_iter, seed=seed, executor=executor,
            )  # fmt: skip
            start = found.coordinates
            losses[model][held_out] = answer_losses(start, triplets[held_out], model)
    best = min(losses, key=lambda model: losses[model].mean())
    gain = losses[candidates[0]] - losses[best]
    convincing = gain.mean() > gain.std() / np.sqrt(len(gain))
    return best if convincing else candidates[0], {model: float(each.mean()) for model, each in losses.items()}


def answer_losses(coordinates: Coordinates, triplets: Triplets, model: NoiseModel) -> Coordinates:
    """Return (m,) −log of the probability that the model gives to each answer, in nats, at least 1e-12 each."""
    chance = model.probability(*compared_distances(coordinates, triplets))
    return -np.log(np.maximum(chance, 1e-12))


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class HeldOut:
    """The result of cross-validation, answer by answer.

    `hits` and `losses` (repeats, m): whether each judged answer agreed (a tie ½) and −log of its probability, in
    nats; `folds` (repeats, m) where it was held out; `groups` (m,) which answers are about the same three targets.
    `fitted` is the mean number of answers that a fold's fit had.
    """

    hits: Floats
    losses: Floats
    folds: NDArray[np.int64]
    groups: NDArray[np.int64]
    fitted: float

    @property
    def accuracy(self) -> Interval:
        """Return the accuracy over all judged answers and repeats."""
        return grouped_interval(self.hits.mean(axis=0), self.groups)

    @property
    def log_loss(self) -> float:
        """Return the mean −log probability in nats; log 2 = .693 is guessing."""
        return float(self.losses.mean())


def noise_with_lapse(name: str) -> NoiseModel | None:
    """Return the noise model of this name with the lapse of fits that are evaluated or shown; None if they learn it."""
    return None if name == RECOMMENDED else noise_model(name, lapse=LAPSE)


@dataclass(frozen=True)
class Candidate:
    """An embedding of d dimensions under a noise model (None: every fit learns it), fitted
    to all answers or the kept ones.
    """

    d: int
    noise: NoiseModel | None
    only_kept: bool = False


@dataclass(frozen=True)
class Evaluation:
    """What all candidates are judged on: (m, 3) triplets of n targets, and which of them (m,) are `judged`.

    Each judged answer is predicted by a fit without it and without all answers about the same three targets. The others
    are always fitted, unless they are about three targets that are held out. A candidate of the `kept` answers (m,) is
    fitted to them alone and judged on them alone, in the same folds. With `features`, every fit learns how much they
    explain.
    """

    triplets: Triplets
    judged: Bools
    kept: Bools
    n: int
    folds: int = FOLDS_JUDGED
    seed: int = 0
    ridge: float = RIDGE
    features: Features | None = None

    @property
    def usable_folds(self) -> int:
        """As many folds as asked for, or fewer, so that each has two groups of three
        targets; 0 if nothing can be held out.
        """
        groups = len(np.unique(triple_groups(self.triplets[self.judged])))
        usable = min(self.folds, groups // 2)
        return usable if usable > 1 else 0

    def assign(self, repeat: int) -> NDArray[np.int64]:
        """Return (judged,) the fold in which each judged answer is held out; the same for every candidate."""
        return grouped_folds(self.triplets[self.judged], self.usable_folds, np.random.default_rng([self.seed, repeat]))

    def judge_fold(
        self, candidate: Candidate, repeat: int, fold: int, executor: Executor | None = None
    ) -> tuple[Floats, Floats, int]:
        """Return hits and losses of the answers of one fold, by a fit without them, and
        how many answers that fit had.
        """
        groups = triple_groups(self.triplets)
        out = np.flatnonzero(self.judged)[self.assign(repeat) == fold]
        fitted = ~np.isin(groups, groups[out])
        if candidate.only_kept:
            fitted, out = fitted & self.kept, out[self.kept[out]]
        with_noise = fit_with_learned_noise if candidate.noise is None else partial(fit, noise=candidate.noise)
        kept, prior = self.triplets[fitted], None
        if self.features is not None:
            prior = learn_prior(
                kept, self.features, candidate.d, ridge=self.ridge, seed=self.seed + repeat, executor=executor
            )
        found = with_noise(
            kept, self.n, candidate.d, ridge=self.ridge, precision=prior and prior.precision,
            start=prior and prior.start, n_starts=0 if prior else 2,
            seed=self.seed + repeat, executor=executor,
        )  # fmt: skip
        rows = self.triplets[out]
        nearer, farther = compared_distances(found.coordinates, rows)
        hits = (nearer < farther) + 0.5 * (nearer == farther)
        return hits, answer_losses(found.coordinates, rows, found.noise), int(fitted.sum())

    def join_folds(
        self, outcomes: Sequence[Sequence[tuple[Floats, Floats, int]]], *, only_kept: bool = False
    ) -> HeldOut:
        """Return what `judge_fold` found in the folds of all repeats as one, in the order of the judged answers."""
        own = self.kept[self.judged] if only_kept else np.ones(int(self.judged.sum()), dtype=np.bool_)
        places = np.array([self.assign(repeat)[own] for repeat in range(len(outcomes))])
        hits, losses = np.empty(places.shape), np.empty(places.shape)
        for repeat, folds in enumerate(outcomes):
            for fold, (hit, loss, _) in enumerate(folds):
                hits[repeat, places[repeat] == fold], losses[repeat, places[repeat] == fold] = hit, loss
        groups = triple_groups(self.triplets[self.judged][own])
        return HeldOut(
            hits, losses, places, groups, float(np.mean([found[2] for folds in outcomes for found in folds]))
        )


def cross_validate(
    triplets: Triplets,
    random: Bools,
    n: int,
    d: int,
    noise: NoiseModel | None,
    *,
    ridge: float = RIDGE,
    features: Features | None = None,
    folds: int = FOLDS_JUDGED,
    repeats: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    after_fit: Callable[[], None] = lambda: None,
) -> HeldOut | None:
    """Judge every `random` answer (m,) once a repeat by a fit without it and without all answers of its group.

    With noise None every fit learns its noise, and with `features` how much they explain. Returns None if too few
    groups were asked at random, because nothing can be held out then.
    """
    evaluation = Evaluation(triplets, random, np.ones(len(triplets), dtype=np.bool_), n, folds, seed, ridge, features)
    candidate = Candidate(d, noise)

    def judge(repeat: int, fold: int) -> tuple[Floats, Floats, int]:
        found = evaluation.judge_fold(candidate, repeat, fold, executor)
        after_fit()
        return found

    usable = evaluation.usable_folds
    if not usable:
        return None
    return evaluation.join_folds([[judge(repeat, fold) for fold in range(usable)] for repeat in range(repeats)])


def grouped_interval(hits: Floats, groups: NDArray[np.int64], confidence: float = 0.95) -> Interval:
    """Return a share of hits (m,) in [0, 1] with an interval that allows for dependence within each group (m,).

    Standard error over groups, √(Σ_g (Σ_{i∈g} (hit_i − share))²) / m (Liang and Zeger 1986); the interval is Wilson's
    (1927) with as many answers as would have this standard error, so that it stays within 0 and 1.
    """
    m = len(hits)
    share = float(hits.mean())
    sums = np.bincount(groups, hits - share)
    count = len(np.unique(groups))
    variance = float((sums**2).sum()) / m**2 * count / max(1, count - 1)
    effective = share * (1 - share) / variance if variance > 0 else float(count)
    z = float(norm.ppf(0.5 + confidence / 2))
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * np.sqrt(share * (1 - share) / effective + z**2 / (4 * effective**2))
    return Interval(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))


Option = TypeVar("Option", bound=Hashable)


@dataclass(frozen=True)
class Selection(Generic[Option]):
    """The candidate chosen, every candidate's held-out accuracy and log-loss (nats), and the reason in a sentence.

    `best` has the highest mean accuracy; `ties` are the candidates within one standard error of it, the chosen one
    among them. `behind` is how far each lies behind the best, with the standard error of that paired difference.
    """

    chosen: Option
    best: Option
    ties: tuple[Option, ...]
    behind: dict[Option, tuple[float, float]]
    accuracy: dict[Option, Interval]
    log_loss: dict[Option, float]
    reason: str


#: A dimension and the name of a noise model.
Pair = tuple[int, str]


def choose(results: Mapping[Pair, HeldOut]) -> Selection[Pair]:
    """Return the dimension and noise model to use, chosen jointly by the one-standard-error rule.

    Among the candidates whose accuracy is less than one standard error behind the best mean, the fewest dimensions win
    (Breiman, Friedman, Olshen and Stone 1984, section 3.4.3, with the standard error of the paired difference, because
    all candidates are judged on the same answers); among those of equal dimension, the highest accuracy, and then the
    smallest log-loss.
    """
    means = {pair: float(found.hits.mean()) for pair, found in results.items()}
    best = max(results, key=lambda pair: (means[pair], -pair[0], -results[pair].log_loss))
    behind = {pair: paired_difference(results[best], found) for pair, found in results.items()}
    ties = tuple(pair for pair, (gap, error) in behind.items() if gap <= error)
    chosen = min(ties, key=lambda pair: (pair[0], -means[pair], results[pair].log_loss))
    return Selection(chosen, best, ties, behind, *_figures(results), _reason(chosen, best, ties, behind))


def paired_difference(one: HeldOut, other: HeldOut) -> tuple[float, float]:
    """Return how much more accurate one is than the other on the same answers, and the standard error of that.

    The error is over groups of answers about the same three targets, as in `grouped_interval`.
    """
    difference = one.hits.mean(axis=0) - other.hits.mean(axis=0)
    mean = float(difference.mean())
    sums = np.bincount(one.groups, difference - mean)
    count = len(np.unique(one.groups))
    return mean, float(np.sqrt((sums**2).sum() * count / max(1, count - 1))) / len(difference)


def _reason(chosen: Pair, best: Pair, ties: tuple[Pair, ...], behind: Mapping[Pair, tuple[float, float]]) -> str:
    others = [pair for pair in ties if pair != chosen]
    if chosen == best:
        first = f"{_named(chosen)} has the highest accuracy."
    else:
        gap, error = behind[chosen]
        first = (
            f"{_named(chosen)} has the fewest dimensions of those within one standard error of the best:"
            f" {gap:.4f} ± {error:.4f} behind {_named(best)}."
        )
    if not others:
        return f"{first} No other is within one standard error of the best."
    return f"{first} The answers do not tell it from {listed(tuple(map(_named, others)), 'and')}."


def _named(pair: Pair) -> str:
    return f"d = {pair[0]} with {pair[1]}"


def _figures(results: Mapping[Option, HeldOut]) -> tuple[dict[Option, Interval], dict[Option, float]]:
    accuracy = {candidate: found.accuracy for candidate, found in results.items()}
    return accuracy, {candidate: found.log_loss for candidate, found in results.items()}


@dataclass(frozen=True)
class NoiseCeiling:
    """The noise ceiling from `queries` that were answered more than once, `answers` in all.

    `agreement` is the probability that two answers to one query agree; no embedding predicts better than `ceiling`.
    """

    agreement: Interval
    ceiling: Interval
    queries: int
    answers: int


def noise_ceiling(triplets: Triplets) -> NoiseCeiling | None:
    """Return the ceiling from repeated queries among these answers; None if there are fewer than two repeated queries.

    If a query's likelier answer has the probability p, two answers agree with the probability a = p² + (1 − p)², so
    that p = (1 + √(2a − 1)) / 2. That is concave in a: with the mean of a in its place the result is an upper bound of
    the mean of p, and may not be reached. Each query's a is estimated without bias from the pairs of its answers.
    """
    if not len(triplets):
        return None
    counts, wins = _answers_by_query(triplets)
    repeated = counts > 1
    if repeated.sum() < 2:
        return None
    counts, wins = counts[repeated], wins[repeated]
    pairs = counts * (counts - 1)
    agreement = (wins * (wins - 1) + (counts - wins) * (counts - wins - 1)) / pairs
    # Queries count by their answers: accuracy, too, is taken over answers.
    weights = counts / counts.sum()
    mean = float(weights @ agreement)
    error = float(np.sqrt((weights**2 * (agreement - mean) ** 2).sum()))
    low, high = max(0.0, mean - 1.96 * error), min(1.0, mean + 1.96 * error)
    return NoiseCeiling(
        agreement=Interval(mean, low, high),
        ceiling=Interval(*(_likelier(share) for share in (mean, low, high))),
        queries=int(repeated.sum()),
        answers=int(counts.sum()),
    )


def _likelier(agreement: float) -> float:
    return (1.0 + float(np.sqrt(max(0.0, 2.0 * agreement - 1.0)))) / 2.0


def _answers_by_query(triplets: Triplets) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each query (q,) how many answers it has, and how often its foot of smaller index won."""
    heads, winners, losers = triplets.astype(np.int64).T
    low, high = np.minimum(winners, losers), np.maximum(winners, losers)
    n = int(triplets.max()) + 1
    _, which = np.unique((heads * n + low) * n + high, return_inverse=True)
    first_won = winners == low
    return np.bincount(which).astype(np.float64), np.bincount(which[first_won], minlength=which.max() + 1).astype(
        np.float64
    )
