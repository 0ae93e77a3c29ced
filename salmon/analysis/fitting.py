"""From a table of answers to an embedding: what is to be chosen is chosen on held-out answers, then all are fitted."""

from collections.abc import Callable

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
    n = table.n
    noises = _noises(options)
    judged = _judge_all(rows, random, n, noises, options, progress)
    notes = list(table.notes)
    by_dimension = {d: found for (d, name), found in judged.items() if name == next(iter(noises)) and found}
    dimension_choice = choose_dimension(by_dimension) if len(by_dimension) > 1 else None
    d = dimension_choice.chosen if dimension_choice else options.dimensions[0]
    by_noise = {name: found for (e, name), found in judged.items() if e == d and found}
    noise_choice = choose_noise_by_accuracy(by_noise) if len(by_noise) > 1 else None
    name = noise_choice.chosen if noise_choice else next(iter(noises))
    if len(options.dimensions) > 1 and dimension_choice is None:
        notes.append(f"Without random answers dimensions cannot be compared; {d} was taken.")
    model, losses = noises[name], dict[NoiseModel, float]()
    if options.choose_lapse and random.any():
        progress("choosing the lapse", 1, 0)
        model, losses = choose_noise(
            rows[random], n, d, noise_candidates(model), ridge=options.ridge, seed=options.seed
        )
        progress("choosing the lapse", 1, 1)
    held_out = judged[d, name]
    if model != noises[name]:
        held_out = _judge_all(rows, random, n, {name: model}, options, progress, (d,))[d, name]
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


def _judge_all(
    rows: Triplets,
    random: NDArray[np.bool_],
    n: int,
    noises: dict[str, NoiseModel],
    options: FitOptions,
    progress: Progress,
    dimensions: tuple[int, ...] | None = None,
) -> dict[tuple[int, str], HeldOut | None]:
    pairs = [(d, name) for d in dimensions or options.dimensions for name in noises]
    total, done = len(pairs) * options.folds * options.repeats, 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("judging on held-out answers", total, min(done, total))

    judged = {
        (d, name): cross_validate(
            rows, random, n, d, noises[name], ridge=options.ridge, folds=options.folds, repeats=options.repeats,
            seed=options.seed, after_fit=step,
        )
        for d, name in pairs
    }  # fmt: skip
    progress("judging on held-out answers", total, total)
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
