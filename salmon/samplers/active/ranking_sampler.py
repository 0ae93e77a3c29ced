"""What the samplers that rank all queries by one score have in common: an embedding and a search."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from numpy.typing import ArrayLike

from salmon.errors import SalmonError
from salmon.geometry import Coordinates
from salmon.learning import Triplets, check_triplets, fit, log_loss
from salmon.learning.adadelta import adadelta
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor
from salmon.samplers.active.state import Round, State, random_round, start_state
from salmon.search import Ranked, exact_search, uncertain_search
from salmon.search.heads import log_head_posterior

Scorer = Literal["infogain", "uncertainty"]


@dataclass(frozen=True)
class RankingSampler(ABC):
    """What the ranking samplers share: the embedding that they search with.

    `R`: random queries only until R·n answers are in. `scorer`: information gain about the head's place, or the
    uncertainty of the answer. `ridge` is the precision of a prior on every coordinate; with 0 the embedding takes the
    few epochs of Adadelta that the published sampler took instead of converging. `fresh_posterior`: where a head may
    sit is judged anew from all of its answers after each refit; otherwise each answer is judged once, under the
    embedding of its time.
    """

    noise: str | NoiseModel = "TSTE"
    d: int = 2
    R: float = 1
    scorer: Scorer = "infogain"
    ridge: float = 1.0
    lapse: float = 0.0
    fresh_posterior: bool = True

    def __post_init__(self) -> None:
        noise_model(self.noise, lapse=self.lapse)
        one_of("scorer", self.scorer, ("infogain", "uncertainty"))

    @property
    def model(self) -> NoiseModel:
        """The noise model of refit and search."""
        return noise_model(self.noise, lapse=self.lapse)

    def start(self, n: int, seed: int) -> State:
        """Before any answer."""
        state = start_state(n, self.d, seed)
        # Adadelta's published start is a thousandth of ours.
        return replace(state, coordinates=1e-3 * state.coordinates) if self.ridge == 0 else state

    def refit(
        self,
        state: State,
        triplets: ArrayLike,
        executor: Executor | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> State:
        """The state after these answers, all there are; warm from the last embedding."""
        rows = check_triplets(triplets, state.n)
        coordinates, loss, converged = self._embedding(state, rows, executor, stop)
        log_posterior = None
        if not self.fresh_posterior:
            judged = 0 if state.log_posterior is None else state.absorbed
            log_posterior = log_head_posterior(rows[judged:], coordinates, self.model)
            if state.log_posterior is not None:
                log_posterior += state.log_posterior
        return replace(
            state,
            coordinates=coordinates,
            generation=state.generation + 1,
            absorbed=len(rows),
            loss=loss,
            converged=converged,
            log_posterior=log_posterior,
        )

    def search(
        self,
        state: State,
        triplets: ArrayLike,
        pending: ArrayLike,
        count: int,
        executor: Executor | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Round:
        """`count` queries in the order of asking; `pending` (p, 3) are those posted and not answered yet."""
        rows, waiting = check_triplets(triplets, state.n), check_triplets(pending, state.n)
        if len(rows) < self.R * state.n:
            return random_round(state, count, len(rows), len(waiting))
        return self.choose(state, rows, waiting, count, executor, stop)

    @abstractmethod
    def choose(
        self,
        state: State,
        rows: Triplets,
        waiting: Triplets,
        count: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Round:
        """A round by this sampler's scores, once there are answers enough; `waiting` are the pending queries."""

    @property
    def shown_model(self) -> NoiseModel:
        """The noise model of the embedding that is shown: that of the search."""
        return self.model

    def report(self, state: State, triplets: ArrayLike, executor: Executor | None = None) -> Coordinates:
        """The embedding to be shown and judged, (n, d): that of the search itself."""
        del triplets, executor  # the search's embedding has seen them already
        return state.coordinates

    def ranked(
        self,
        state: State,
        rows: Triplets,
        keep: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Ranked:
        """The best queries of every head by this sampler's score."""
        if self.scorer == "uncertainty":
            return uncertain_search(state.coordinates, self.model, keep)
        return exact_search(
            state.coordinates,
            rows,
            self.model,
            keep,
            executor,
            stop=stop,
            seed=state.seed,
            log_posterior=state.log_posterior,
        )

    def _embedding(
        self, state: State, rows: Triplets, executor: Executor | None, stop: Callable[[], bool] | None
    ) -> tuple[Coordinates, float, bool]:
        if self.ridge == 0:
            epochs = _epochs(len(rows), state.n, state.d)
            batches = state.seed + state.generation
            coordinates = adadelta(state.coordinates, rows, self.model, epochs=epochs, seed=batches)
            return coordinates, log_loss(coordinates, rows, noise=self.model), False
        found = fit(
            rows,
            state.n,
            state.d,
            noise=self.model,
            ridge=self.ridge,
            start=state.coordinates,
            seed=state.seed,
            executor=executor,
            stop=stop,
        )
        return found.coordinates, found.loss, found.converged


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices, in a sentence."""
    if value not in choices:
        raise SalmonError(f"{name} is {value!r}.", hint=f"Use one of {', '.join(choices)}.", where=name)


def _epochs(m: int, n: int, d: int) -> int:
    """Epochs of a published refit: 200, 120 or 50 as the answers are at most 1, at most 3 or more times n·d·ln n."""
    ratio = m / (n * d * log(n))
    return 200 if ratio <= 1 else 120 if ratio <= 3 else 50
