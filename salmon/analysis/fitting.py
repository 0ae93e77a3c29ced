"""From a table of answers to an embedding: what is to be chosen is chosen on held-out answers, then all are fitted."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from salmon.analysis.ceiling import noise_ceiling
from salmon.analysis.choice import choose_dimension, choose_noise_by_accuracy
from salmon.analysis.held_out import HeldOut, Interval, cross_validate, grouped_interval
from salmon.analysis.report import RECOMMENDED, FitOptions, FitReport
from salmon.errors import TripletError
from salmon.estimator import RECOMMENDED_NOISE, choose_noise, noise_candidates, triple_groups
from salmon.formats import AnswerTable
from salmon.geometry import align, principal_axes
from salmon.learning import Fit, Triplets, accuracy, fit, laplace
from salmon.learning.accuracy import compared_distances
from salmon.noise import NoiseModel, noise_model

Floats = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

#: Told what is being done, how many steps that takes in all, and how many are done.
Progress = Callable[[str, int, int], None]
#: Noise models that are compared with the recommended one where a choice is asked for.
COMPARED_NOISE = ("TSTE", "STE", "CKL", "SOE", "GNMDS")
_COMPARED_LAPSE = 0.05
# Starts of the final fit: spectral and random ones.
_STARTS = 4
_SMALLEST_RIDGE = 1e-6


def silent(what: str, total: int, done: int) -> None:
    """Progress that nobody watches."""
    del what, total, done


def analyse(table: AnswerTable, options: FitOptions, progress: Progress = silent) -> FitReport:
    """Choose what is to be chosen, fit all answers but the test set, and judge the embedding."""
    rows = table.triplets[~table.test]
    random = table.random[~table.test]
    if not len(rows):
        raise TripletError("All answers belong to a test set; none is left to fit.", hint="Name fewer test samplers.")
    n, notes = table.n, list(table.notes)
    noises = _noises(options)
    first = next(iter(noises))
    judge = _Judge(rows, random, n, options, progress)
    by_dimension = judge.compare("dimensions", {d: (d, noises[first]) for d in options.dimensions})
    dimension_choice = choose_dimension(by_dimension) if len(by_dimension) > 1 else None
    d = dimension_choice.chosen if dimension_choice else options.dimensions[0]
    if len(options.dimensions) > 1 and dimension_choice is None:
        notes.append(f"Without random answers dimensions cannot be compared; {d} was taken.")
    held_out = by_dimension.get(d)
    noise_choice = None
    model, losses = noises[first], dict[NoiseModel, float]()
    if held_out is not None and len(noises) > 1:
        others = judge.compare("noise models", {name: (d, noises[name]) for name in noises if name != first})
        noise_choice = choose_noise_by_accuracy({first: held_out, **others})
        model = noises[noise_choice.chosen]
        held_out = others.get(noise_choice.chosen, held_out)
    if options.choose_lapse and random.any():
        progress("choosing the lapse", 1, 0)
        chosen, losses = choose_noise(
            rows[random], n, d, noise_candidates(model), ridge=options.ridge, seed=options.seed
        )
        progress("choosing the lapse", 1, 1)
        if chosen != model:
            model, held_out = chosen, judge.compare("the chosen model", {d: (d, chosen)}).get(d)
    progress("fitting all answers", 1, 0)
    found = fit(rows, n, d, noise=model, ridge=options.ridge, n_starts=_STARTS, seed=options.seed)
    coordinates, covariance = _upright(found, rows)
    progress("fitting all answers", 1, 1)
    return FitReport(
        coordinates=coordinates,
        covariance=covariance,
        noise=model,
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
        ceiling=noise_ceiling(table.triplets[table.repeatable]),
        dimension_choice=dimension_choice,
        noise_choice=noise_choice,
        lapse_losses={f"{candidate}": loss for candidate, loss in losses.items()},
        notes=tuple(notes),
    )


def _noises(options: FitOptions) -> dict[str, NoiseModel]:
    """The noise models to judge, by name; the first one is the one that chooses the dimension."""
    recommended = {RECOMMENDED: noise_model(RECOMMENDED_NOISE, lapse=options.lapse)}
    lapse = _COMPARED_LAPSE if options.lapse is None else options.lapse
    if options.noise == "choose":
        return recommended | {name: noise_model(name, lapse=lapse) for name in COMPARED_NOISE}
    if options.noise == RECOMMENDED:
        return recommended
    model = noise_model(options.noise, lapse=lapse)
    return {type(model).__name__: model}


@dataclass(frozen=True)
class _Judge:
    """Cross-validation of candidates on the same folds."""

    rows: Triplets
    random: NDArray[np.bool_]
    n: int
    options: FitOptions
    progress: Progress

    def compare(self, what: str, candidates: dict[Key, tuple[int, NoiseModel]]) -> dict[Key, HeldOut]:
        """What cross-validation says of each candidate's dimension and noise model; empty if nothing can be held out."""
        options, judged = self.options, dict[Key, HeldOut]()
        total, done = len(candidates) * options.folds * options.repeats, 0

        def step() -> None:
            nonlocal done
            done += 1
            self.progress(f"judging {what}", total, done)

        for key, (d, noise) in candidates.items():
            found = cross_validate(
                self.rows, self.random, self.n, d, noise, ridge=options.ridge, folds=options.folds,
                repeats=options.repeats, seed=options.seed, after_fit=step,
            )  # fmt: skip
            if found is not None:
                judged[key] = found
        self.progress(f"judging {what}", total, total)
        return judged


def _upright(found: Fit, rows: Triplets) -> tuple[Floats, Floats]:
    """The embedding turned to its principal axes, and the covariance of each position turned with it."""
    posterior = laplace(found.coordinates, rows, found.noise, ridge=max(found.ridge, _SMALLEST_RIDGE))
    upright = principal_axes(found.coordinates)
    turn = align(found.coordinates, upright).rotation
    return upright, turn.T @ posterior.target_covariance() @ turn


def _test_accuracy(coordinates: Floats, test: Triplets) -> Interval | None:
    if not len(test):
        return None
    nearer, farther = compared_distances(coordinates, test)
    return grouped_interval((nearer < farther) + 0.5 * (nearer == farther), triple_groups(test))
