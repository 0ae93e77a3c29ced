"""List the active samplers, which choose queries by an embedding of the answers so far.

`ACTIVE` holds the names that a spec may use. Each sampler is a frozen dataclass of its arguments with

    start(n, seed) -> State
    refit(state, triplets, executor, stop) -> State
    search(state, triplets, pending, count, executor, stop) -> Round
    report(state, triplets, executor) -> ShownEmbedding

all of them pure: the same answers and the same seed give the same queries.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

from numpy.typing import ArrayLike

from salmon.errors import SalmonError
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.arr import ARR, SRR, Greedy, RankingSampler, Uncertainty
from salmon.samplers.state import LeaveOut, Round, ShownEmbedding, State

__all__ = [
    "ACTIVE",
    "ARR",
    "SRR",
    "ActiveSampler",
    "Adaptive",
    "Greedy",
    "Round",
    "State",
    "Uncertainty",
    "active_sampler",
]


class ActiveSampler(Protocol):
    """The interface of every active sampler."""

    @property
    def leave_out(self) -> LeaveOut:
        """Return whose answers are left out of the model."""
        ...

    @property
    def R(self) -> float:
        """Return R: only random queries are asked until R·n answers are in."""
        ...

    @property
    def model(self) -> NoiseModel:
        """Return the noise model of the search, which need not be that of the embedding that is shown."""
        ...

    def start(self, n: int, seed: int) -> State:
        """Return the state before any answer."""
        ...

    def refit(
        self,
        state: State,
        triplets: ArrayLike,
        executor: Executor | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> State:
        """Return the state after these answers."""
        ...

    def search(
        self,
        state: State,
        triplets: ArrayLike,
        pending: ArrayLike,
        count: int,
        executor: Executor | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> Round:
        """Return `count` queries in the order of asking; fewer if `stop` says that so many are enough."""
        ...

    def report(self, state: State, triplets: ArrayLike, executor: Executor | None = None) -> ShownEmbedding:
        """Return the embedding to be shown and judged."""
        ...


#: Name -> sampler. The names of noise models are older samplers: `ARR` with that noise model and R = 10.
ACTIVE: dict[str, type[Adaptive | RankingSampler]] = {
    "Adaptive": Adaptive,
    "ARR": ARR,
    "SRR": SRR,
    "Greedy": Greedy,
    "Uncertainty": Uncertainty,
    "TSTE": ARR,
    "STE": ARR,
    "CKL": ARR,
    "GNMDS": ARR,
    "SOE": ARR,
}
_NAMED_AFTER_NOISE = ("TSTE", "STE", "CKL", "GNMDS", "SOE")
# Published experiments set these; they have no meaning where the optimiser needs no tuning.
_WITHOUT_MEANING = ("random_state", "initial_batch_size", "max_epochs")
# Where a noise model inside a sampler has another default than the model on its own.
_SAMPLER_DEFAULTS = {"CKL": {"mu": 1.0}}


def active_sampler(name: str, arguments: Mapping[str, Any] | None = None) -> ActiveSampler:
    """Return the sampler of this name with the arguments of a spec, in their present or older spelling.

    `module` is `noise`; `module__alpha`, `module__mu`, `alpha`, `mu` and `k` are parameters of the noise model, and
    t-STE with a `k` is its power form. Arguments that are shared by a file's samplers may mean nothing to this one:
    those of other samplers and of other noise models, `optimizer`, `optimizer__…`, `random_state`,
    `initial_batch_size` and `max_epochs` are accepted and have no effect. A name that no sampler knows is refused.
    """
    if name not in ACTIVE:
        raise SalmonError(f"There is no active sampler {name!r}.", hint=f"Use one of {', '.join(ACTIVE)}.")
    sampler = ACTIVE[name]
    given = dict(arguments or {})
    noise = given.pop("noise", given.pop("module", None))
    if noise is None:
        noise = name if name in _NAMED_AFTER_NOISE else "TSTE"
    if name in _NAMED_AFTER_NOISE:
        given.setdefault("R", 10)
    parameters = {key: given.pop(spelling) for spelling, key in _noise_parameters(given).items()}
    known = _arguments_of(sampler)
    unknown = sorted(
        key
        for key in set(given).difference(*map(_arguments_of, ACTIVE.values()), _WITHOUT_MEANING)
        if not key.startswith("optimizer")
    )
    if unknown:
        raise SalmonError(
            f"The sampler {name} has no argument {', '.join(unknown)}.", hint=f"It takes {', '.join(sorted(known))}."
        )
    if isinstance(noise, str) and noise.upper() == "TSTE" and "k" in parameters:
        noise = "PowerTSTE"
    if isinstance(noise, str):
        parameters = _SAMPLER_DEFAULTS.get(noise.upper(), {}) | parameters
        meant = {field.name for field in fields(type(noise_model(noise)))}
        parameters = {key: value for key, value in parameters.items() if key in meant}
    return sampler(
        noise=noise_model(noise, **parameters), **{key: value for key, value in given.items() if key in known}
    )


def _arguments_of(sampler: type[Adaptive | RankingSampler]) -> set[str]:
    return {field.name for field in fields(sampler)}


def _noise_parameters(given: Mapping[str, Any]) -> dict[str, str]:
    """Return spelling in the spec → name of the noise model's parameter."""
    return {
        key: key.removeprefix("module__") for key in given if key.startswith("module__") or key in {"alpha", "mu", "k"}
    }
