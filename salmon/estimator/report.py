"""Fit a table of answers and report on it: choose what is to be chosen on held-out answers, then fit all of them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.answer_files.answer_table import AnswerTable
from salmon.answer_files.published_map import PublishedMap
from salmon.errors import TripletError
from salmon.estimator import RECOMMENDED_NOISE, choose_noise, noise_candidates, triple_groups
from salmon.estimator.cross_validation import (
    FOLDS_JUDGED,
    LAPSE,
    RECOMMENDED,
    RIDGE,
    HeldOut,
    Interval,
    NoiseCeiling,
    Pair,
    Selection,
    choose,
    cross_validate,
    grouped_interval,
    noise_ceiling,
)
from salmon.geometry import align, principal_axes
from salmon.learning import Fit, Triplets, accuracy, fit
from salmon.learning.features import Features, learn_prior
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.objective import compared_distances
from salmon.learning.uncertainty import position_covariance
from salmon.noise import NoiseModel, noise_model

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FitOptions:
    """What the user decided.

    `dimensions` with several entries and `noise` = "choose" ask for a joint choice on held-out answers. Without a
    `lapse` the recommended noise model learns its exponent and lapse; `choose_lapse` chooses the lapse of any other.
    """

    dimensions: tuple[int, ...] = (2,)
    noise: str = RECOMMENDED
    lapse: float | None = None
    choose_lapse: bool = False
    ridge: float = RIDGE
    folds: int = FOLDS_JUDGED
    repeats: int = 1
    seed: int = 0


@dataclass(frozen=True)
class FitReport:
    """An embedding with its figures.

    `coordinates` (n, d), centred, widest axis first; `covariance` (n, d, d) of each position up to shifts, rotations
    and the size of the map. `ridge` is that of the fit, which a learned noise model may change. `held_out` is None
    where no random answers could be kept back; `test_accuracy` is on answers of a test set; `starts` is the objective
    reached from each start, and `start` the published map that was one of them; `feature_weight` the share of the
    positions' variance that features explain, None without features.
    """

    coordinates: Floats
    covariance: Floats
    noise: NoiseModel
    ridge: float
    options: FitOptions
    answers: int
    random_answers: int
    fitted_accuracy: float
    fitted_log_loss: float
    converged: bool
    starts: dict[str, float]
    held_out: Interval | None
    held_out_log_loss: float | None
    test_accuracy: Interval | None
    ceiling: NoiseCeiling | None
    choice: Selection[Pair] | None
    feature_weight: float | None = None
    start: PublishedMap | None = None
    lapse_losses: dict[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file; coordinates stay in the embedding's own file."""
        return {
            "n_targets": len(self.coordinates),
            "n_components": self.coordinates.shape[1],
            "noise": {"name": type(self.noise).__name__, **asdict(self.noise)},
            "ridge": self.ridge,
            "options": {**asdict(self.options), "dimensions": list(self.options.dimensions)},
            "answers": {"fitted": self.answers, "random": self.random_answers},
            "fitted": {"accuracy": self.fitted_accuracy, "log_loss": self.fitted_log_loss},
            "starts": self.starts,
            "start": self.start and self.start.as_json(),
            "converged": self.converged,
            "held_out": {**_plain(self.held_out), "log_loss": self.held_out_log_loss} if self.held_out else None,
            "test_set": _plain(self.test_accuracy) if self.test_accuracy else None,
            "noise_ceiling": self.ceiling and asdict(self.ceiling),
            "choice": self.choice and choice_as_json(self.choice),
            "feature_weight": self.feature_weight,
            "lapse_choice": self.lapse_losses,
            "uncertainty": {"standard_deviation": np.sqrt(np.trace(self.covariance, axis1=1, axis2=2)).tolist()},
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        """Return the report as text for a reader."""
        n, d = self.coordinates.shape
        parameters = ", ".join(f"{name} = {value:g}" for name, value in asdict(self.noise).items())
        lines = [
            f"{n} targets in {d} dimension{'s' if d > 1 else ''}, from {self.answers:,} answers.",
            f"Noise model: {type(self.noise).__name__} ({parameters}); ridge {self.ridge:.3g}.",
            f"Accuracy on the fitted answers: {self.fitted_accuracy:.3f} (log-loss {self.fitted_log_loss:.3f} nats).",
        ]
        if self.held_out is not None:
            lines += [
                f"Held-out accuracy: {self.held_out} (95 % interval), log-loss {self.held_out_log_loss:.3f} nats,",
                f"  on {self.random_answers:,} random answers in {self.options.folds} folds, grouped by their three targets.",
            ]
        else:
            lines.append("Held-out accuracy: none, because too few queries were chosen at random.")
        if self.test_accuracy is not None:
            lines.append(f"Accuracy on the test set: {self.test_accuracy} (95 % interval).")
        if self.ceiling is not None:
            lines += [
                f"Noise ceiling: at most {self.ceiling.ceiling} (95 % interval),",
                f"  from {self.ceiling.answers:,} answers to {self.ceiling.queries:,} repeated queries;",
                f"  two answers to one query agree with probability {self.ceiling.agreement.value:.3f}.",
            ]
        else:
            lines.append("Noise ceiling: unknown, because no query was answered twice.")
        if self.feature_weight is not None:
            lines.append(f"Features explain about {self.feature_weight:.0%} of the variance of the positions.")
        spread = max(self.starts.values()) - min(self.starts.values())
        lines.append(
            f"Starts: {len(self.starts)}, the best objective {min(self.starts.values()):.4f}, spread {spread:.4f}."
        )
        if self.start is not None:
            lines.append(f"One of them is the published map of {len(self.start.targets)} targets: {self.start.source}.")
        if not self.converged:
            lines.append("The fit did not converge within its maximum number of iterations.")
        lines += _choice_lines(self.choice)
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines) + "\n"


def _plain(interval: Interval) -> dict[str, float]:
    return {"accuracy": interval.value, "low": interval.low, "high": interval.high}


def choice_as_json(choice: Selection[Pair]) -> dict[str, Any]:
    """Return the choice as plain values: each candidate with its figures, and how far it lies behind the best."""
    return {
        "chosen": _pair(choice.chosen),
        "best": _pair(choice.best),
        "ties": [_pair(pair) for pair in choice.ties],
        "reason": choice.reason,
        "candidates": [
            {
                **_pair(pair),
                **_plain(choice.accuracy[pair]),
                "log_loss": choice.log_loss[pair],
                "behind": choice.behind[pair][0],
                "behind_error": choice.behind[pair][1],
            }
            for pair in choice.accuracy
        ],
    }


def choice_as_text(report: FitReport) -> str:
    """Return the comparison of candidates, the noise ceiling, and the reason for the choice, for a reader."""
    ceiling = f"Noise ceiling: at most {report.ceiling.ceiling} (95 % interval)." if report.ceiling else ""
    notes = [f"Note: {note}" for note in report.notes]
    return "\n".join(line for line in (*_choice_lines(report.choice), ceiling, *notes) if line) + "\n"


def _pair(pair: Pair) -> dict[str, Any]:
    return {"d": pair[0], "noise": pair[1]}


def _choice_lines(choice: Selection[Pair] | None) -> list[str]:
    if choice is None:
        return []
    rows = [
        f"  d = {pair[0]}  {pair[1]:>10}  accuracy {choice.accuracy[pair]}  log-loss {choice.log_loss[pair]:.3f}"
        f"  behind the best {choice.behind[pair][0]:.4f} ± {choice.behind[pair][1]:.4f}"
        + ("  <- chosen" if pair == choice.chosen else "")
        for pair in choice.accuracy
    ]
    return ["Dimensions and noise models, judged on the same folds:", *rows, f"  {choice.reason}"]


#: Called with what is being done, how many steps that takes in all, and how many are done.
Progress = Callable[[str, int, int], None]
#: Noise models that are compared with the recommended one where a choice is asked for.
COMPARED_NOISE = ("TSTE", "STE", "CKL", "SOE", "GNMDS")
# Starts of the final fit: spectral and random ones.
_STARTS = 4


def silent(what: str, total: int, done: int) -> None:
    """Progress that is not shown."""
    del what, total, done


def analyse(
    table: AnswerTable,
    options: FitOptions,
    progress: Progress = silent,
    *,
    features: Features | None = None,
    start: PublishedMap | None = None,
) -> FitReport:
    """Choose what is to be chosen, fit all answers but the test set, and judge the embedding.

    `features` are those of the table's n targets, in their order. `start` is a map that was shown of these answers: the
    fit of all of them starts from it too. Fits that are judged do not, because it has seen what they hold out.
    """
    rows = table.triplets[~table.test]
    random = table.random[~table.test]
    if not len(rows):
        raise TripletError("All answers belong to a test set; none is left to fit.", hint="Name fewer test samplers.")
    n, notes = table.n, list(table.notes)
    noises = _noises(options)
    judge = _Judge(rows, random, n, options, progress, features)
    pairs = tuple(product(options.dimensions, noises))
    judged = judge.compare("dimensions and noise models", {(d, name): noises[name] for d, name in pairs})
    choice = choose(judged) if len(judged) > 1 else None
    d, name = choice.chosen if choice else pairs[0]
    if len(pairs) > 1 and choice is None:
        notes.append(f"Candidates cannot be compared without random answers; d = {d} with {name} was used.")
    held_out = judged.get((d, name))
    model, losses = noises[name], dict[NoiseModel, float]()
    if options.choose_lapse and random.any() and model is not None:
        progress("choosing the lapse", 1, 0)
        chosen, losses = choose_noise(
            rows[random], n, d, noise_candidates(model), ridge=options.ridge, seed=options.seed
        )
        progress("choosing the lapse", 1, 1)
        if chosen != model:
            model, held_out = chosen, judge.compare("the chosen model", {(d, name): chosen}).get((d, name))
    progress("fitting all answers", 1, 0)
    with_noise = fit_with_learned_noise if model is None else partial(fit, noise=model)
    prior = learn_prior(rows, features, d, ridge=options.ridge, seed=options.seed) if features is not None else None
    found = with_noise(
        rows, n, d, ridge=options.ridge, precision=prior and prior.precision, start=prior and prior.start,
        published=start and start.rows_of(table.ids, table.labels), n_starts=_STARTS, seed=options.seed,
    )  # fmt: skip
    coordinates, covariance = _upright(found, rows, options.seed)
    progress("fitting all answers", 1, 1)
    return FitReport(
        coordinates=coordinates,
        covariance=covariance,
        noise=found.noise,
        ridge=found.ridge,
        options=options,
        answers=len(rows),
        random_answers=int(random.sum()),
        fitted_accuracy=accuracy(coordinates, rows),
        fitted_log_loss=found.loss,
        converged=found.converged,
        starts=dict(zip(found.start_names, found.start_losses, strict=True)),
        held_out=held_out.accuracy if held_out else None,
        held_out_log_loss=held_out.log_loss if held_out else None,
        test_accuracy=_test_accuracy(coordinates, table.triplets[table.test]),
        ceiling=noise_ceiling(table.for_ceiling),
        choice=choice,
        feature_weight=prior and prior.weight,
        start=start,
        lapse_losses={f"{candidate}": loss for candidate, loss in losses.items()},
        notes=tuple(notes),
    )


def _noises(options: FitOptions) -> dict[str, NoiseModel | None]:
    """Return the noise models to judge, by name; None is the one that every fit learns."""
    recommended = {RECOMMENDED: None if options.lapse is None else noise_model(RECOMMENDED_NOISE, lapse=options.lapse)}
    lapse = LAPSE if options.lapse is None else options.lapse
    if options.noise == "choose":
        return recommended | {name: noise_model(name, lapse=lapse) for name in COMPARED_NOISE}
    if options.noise == RECOMMENDED:
        return dict(recommended)
    model = noise_model(options.noise, lapse=lapse)
    return {type(model).__name__: model}


@dataclass(frozen=True)
class _Judge:
    """Cross-validates candidates on the same folds."""

    rows: Triplets
    random: NDArray[np.bool_]
    n: int
    options: FitOptions
    progress: Progress
    features: Features | None

    def compare(self, what: str, candidates: dict[Pair, NoiseModel | None]) -> dict[Pair, HeldOut]:
        """Return the result for each dimension and noise model; empty if nothing can be held out."""
        options, judged = self.options, dict[Pair, HeldOut]()
        total, done = len(candidates) * options.folds * options.repeats, count(1)

        def step() -> None:
            self.progress(f"judging {what}", total, next(done))

        for pair, noise in candidates.items():
            found = cross_validate(
                self.rows, self.random, self.n, pair[0], noise, ridge=options.ridge,
                features=self.features, folds=options.folds, repeats=options.repeats, seed=options.seed, after_fit=step,
            )  # fmt: skip
            if found is not None:
                judged[pair] = found
        self.progress(f"judging {what}", total, total)
        return judged


def _upright(found: Fit, rows: Triplets, seed: int) -> tuple[Floats, Floats]:
    """Return the embedding turned to its principal axes, and the covariance of each position turned with it."""
    covariance = position_covariance(
        found.coordinates, rows, found.noise, ridge=found.ridge, precision=found.precision, seed=seed
    )
    upright = principal_axes(found.coordinates)
    turn = align(found.coordinates, upright).rotation
    return upright, turn.T @ covariance @ turn


def _test_accuracy(coordinates: Floats, test: Triplets) -> Interval | None:
    if not len(test):
        return None
    nearer, farther = compared_distances(coordinates, test)
    return grouped_interval((nearer < farther) + 0.5 * (nearer == farther), triple_groups(test))
