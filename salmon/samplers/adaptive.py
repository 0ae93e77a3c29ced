"""Implement `Adaptive`, the recommended sampler: every turn asks the query that makes predictions most certain."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError, listed
from salmon.geometry import Coordinates
from salmon.learning import Posterior, check_triplets, fit, laplace
from salmon.learning.features import fit_with_features, search_precision, shown_precision
from salmon.learning.noise_learning import RECOMMENDED_RIDGE, fit_with_learned_noise
from salmon.noise import TSTE, NoiseModel, PowerTSTE, noise_model
from salmon.parallel import Executor
from salmon.records import TrialType
from salmon.samplers.state import (
    LeaveOut,
    Round,
    ShownEmbedding,
    State,
    number_of_queries,
    random_queries,
    random_round,
    round_robin,
    start_state,
)
from salmon.search.design import Linearised, arrange, design_target, linearise
from salmon.search.wide_design import arrange_wide

# Up to this many coordinates a round scores every query with the full covariance (n = 500 in the plane: .7 seconds of
# one core). Beyond, it takes the cheaper mode: a covariance a target, and the best of a sample of feet. Where both were
# tried (n = 90 and 300) the cheaper one cost no answers, and a live experiment cannot wait 4.5 seconds at n = 1,000.
_LARGEST_FULL_DESIGN = 1000
# From this many targets the design's target is worth spreading over workers.
_WORTH_SENDING = 300
# The separate embedding that is reported: more lapses and next to no ridge (measured to agree best with fresh answers,
# where the search itself is best with a ridge of 1).
_REPORT_LAPSE = 0.07
_REPORT_STARTS = 3


@dataclass(frozen=True)
class Adaptive:
    """I-optimal design on a Laplace posterior: heads in turn, each with the query that lowers tr(MΣ) most.

    `noise` is the noise model of the embedding that is shown; with t-STE, or its power form with k = 1, exponent and
    lapse are learned from the answers. The search always uses t-STE with a `lapse`, because a search with another model
    can be worse than random queries (CKL on human answers, docs/efficiency.md). `R`: random queries only until R·n
    answers are in. `random_share`: the probability that a turn gets a uniformly random query instead; such answers are
    an unbiased test set, and each query's probability is recorded. `ridge` is the precision of the prior on every
    coordinate, `lapse` the share of inattention in the noise model, both of the embedding that is searched with;
    `report` fits the one that is shown. `leave_out`: whose answers the backend leaves out of the model, "clickers" (see
    `salmon.learning.clickers`) or "nobody".
    """

    noise: str | NoiseModel = "TSTE"
    d: int = 2
    R: float = 1
    random_share: float = 0.15
    ridge: float = 1.0
    lapse: float = 0.05
    leave_out: LeaveOut = "clickers"

    def __post_init__(self) -> None:
        noise_model(self.noise, lapse=self.lapse)
        if self.leave_out not in get_args(LeaveOut):
            raise SalmonError(
                f"leave_out is {self.leave_out!r}.", hint=f"Give {listed(get_args(LeaveOut))}.", where="leave_out"
            )
        if not 0 <= self.random_share <= 1:
            raise SalmonError(
                f"random_share is {self.random_share}.",
                hint="Give a number from 0 to 1.",
                where="random_share",
            )
        if self.ridge <= 0:
            raise SalmonError(
                f"ridge is {self.ridge}, which is not the precision of a prior.",
                hint="Give a number above 0.",
                where="ridge",
            )

    @property
    def model(self) -> NoiseModel:
        """Return the noise model of the search, whatever model is shown."""
        return TSTE(lapse=self.lapse)

    def start(self, n: int, seed: int) -> State:
        """Return the state before any answer."""
        return start_state(n, self.d, seed)

    def refit(
        self,
        state: State,
        triplets: ArrayLike,
        executor: Executor | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> State:
        """Return the state after these answers, which are all there are; the last embedding is the start of the fit."""
        rows = check_triplets(triplets, state.n)
        weight = None
        if state.features is not None and len(rows):
            weighed = fit_with_features(
                rows, state.features, state.d, weight=state.feature_weight, noise=self.model, ridge=self.ridge,
                start=state.coordinates, seed=state.seed, executor=executor, stop=stop,
            )  # fmt: skip
            found, weight = weighed.fit, weighed.weight
        else:
            found = fit(
                rows, state.n, state.d, noise=self.model, ridge=self.ridge, start=state.coordinates, seed=state.seed,
                executor=executor, stop=stop,
            )  # fmt: skip
        return replace(
            state,
            feature_weight=weight,
            coordinates=found.coordinates,
            generation=state.generation + 1,
            absorbed=len(rows),
            loss=found.loss,
            converged=found.converged,
        )

    def search(
        self,
        state: State,
        triplets: ArrayLike,
        pending: ArrayLike,
        count: int,
        executor: Executor | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> Round:
        """Return `count` queries in the order of asking; heads go round as often as needed.

        `pending` (p, 3) are the queries posted and not answered yet: they count as asked. `stop` is told now and then
        how many queries are chosen, and may say that they are enough. A random turn has its own head; its probability
        is random_share divided by the number of all queries, whatever was drawn before.
        """
        rows = check_triplets(triplets, state.n)
        waiting = check_triplets(pending, state.n)
        if len(rows) < self.R * state.n:
            return random_round(state, count, len(rows), len(waiting))
        generator = state.generator(1, len(rows), len(waiting))
        turns, is_random = self._turns(state.n, count, generator)
        full = state.n * state.d <= _LARGEST_FULL_DESIGN
        prior = None
        if state.features is not None:
            prior = search_precision(state.features, state.feature_weight or 0.0, self.ridge)
        posterior = laplace(
            state.coordinates, rows, self.model, ridge=self.ridge, precision=prior, pending=waiting, full=full
        )
        if posterior.full:
            linear = linearise(posterior.coordinates, self.model)
            target = _spread_target(linear, posterior, executor)
            arrangement = arrange(linear, posterior.covariance, target, turns, stop=stop)
        else:
            arrangement = arrange_wide(posterior, self.model, turns, generator, stop=stop)
        done = len(arrangement.queries)
        types: list[TrialType] = ["random" if drawn else "active" for drawn in is_random[:done]]
        chance = self.random_share / number_of_queries(state.n)
        return Round(
            queries=arrangement.queries,
            scores=arrangement.scores,
            trial_types=tuple(types),
            probabilities=np.where(is_random[:done], chance, 0.0),
            generation=state.generation,
            exact=posterior.full,
            complete=arrangement.complete,
        )

    def report(self, state: State, triplets: ArrayLike, executor: Executor | None = None) -> ShownEmbedding:
        """Return the embedding to be shown and judged, which is fitted separately from the one searched with."""
        shown = noise_model(self.noise, lapse=_REPORT_LAPSE)
        learned = shown in (TSTE(lapse=_REPORT_LAPSE), PowerTSTE(lapse=_REPORT_LAPSE))
        with_noise = fit_with_learned_noise if learned else partial(fit, noise=shown)
        prior = None
        if state.features is not None:
            prior = shown_precision(state.features, state.feature_weight or 0.0, RECOMMENDED_RIDGE)
        found = with_noise(
            triplets,
            state.n,
            state.d,
            ridge=RECOMMENDED_RIDGE,
            precision=prior,
            start=state.coordinates,
            n_starts=_REPORT_STARTS,
            seed=state.seed,
            executor=executor,
        )
        return ShownEmbedding(found.coordinates, found.noise, found.ridge, found.precision)

    def _turns(self, n: int, count: int, generator: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return (count, 3) turns, with feet −1 if they are to be chosen, and which of them are random."""
        heads = round_robin(n, count, generator)
        is_random = generator.random(count) < self.random_share
        turns = np.stack([heads, np.full(count, -1), np.full(count, -1)], axis=1).astype(np.int32)
        turns[is_random] = random_queries(n, int(is_random.sum()), generator)
        return turns, is_random


def _spread_target(linear: Linearised, posterior: Posterior, executor: Executor | None) -> Coordinates:
    if executor is None or executor.workers == 1 or linear.n < _WORTH_SENDING:
        return design_target(linear, posterior.covariance)
    parts = np.array_split(np.arange(linear.n), executor.workers)
    # Scattered: the covariance is too large to be sent along with every piece of work.
    shared = executor.scatter(linear), executor.scatter(posterior.covariance)
    return sum(executor.map(design_target, *(repeat(handle, len(parts)) for handle in shared), parts), np.zeros(()))
