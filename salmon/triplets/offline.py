"""`OfflineEmbedding` and `join` as scripts of the first Salmon call them, on today's refit.

What has the same meaning keeps it. Stochastic passes are gone: a fit converges, mostly within a hundred passes, so
`max_epochs` only bounds it, and settings of the old optimiser (`opt`, `optimizer…`, `lr`, `device`, …) have no effect.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from salmon.errors import SalmonError
from salmon.geometry import Coordinates
from salmon.learning import accuracy, check_triplets, fit, log_loss
from salmon.noise import NoiseModel, noise_model

#: The penalty of `salmon.OrdinalEmbedding`.
_RIDGE = 0.03
#: Passes between two lines of the history, and in one call of `partial_fit`.
_PASSES = 10
_MOST_PASSES = 2_000
_PARAMETERS = ("alpha", "mu", "k", "lapse")


class OfflineEmbedding(BaseEstimator):
    """An embedding of downloaded answers.

    Parameters
    ----------
    n, d : int
        Targets and dimensions.
    max_epochs : int
        Passes through the answers at the most; a fit that has converged ends before.
    noise_model : str
        "CKL", "TSTE", "STE", "SOE", "GNMDS", "Logistic" or "PowerTSTE"; `module__mu`,
        `module__alpha` are its parameters.
    random_state : int or None
        Draws the start.
    ident : str
        Written into every line of the history.
    opt, verbose, **kwargs
        Taken, and without effect where the new fit has nothing to set.

    Attributes
    ----------
    embedding_ : (n, d) float64, a new copy at every access
    history_ : list of dict, a line every few passes: score_train, loss_train, score_test, loss_test, elapsed_time, …
    meta_ : dict, the newest figures
    """

    def __init__(
        self,
        n: int | None = None,
        d: int | None = None,
        max_epochs: int = 400_000,
        opt: Any = None,
        verbose: int = 1000,
        ident: str = "",
        noise_model: str = "CKL",
        random_state: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.n = n
        self.d = d
        self.max_epochs = max_epochs
        self.opt = opt
        self.verbose = verbose
        self.ident = ident
        self.noise_model = noise_model
        self.random_state = random_state
        self.kwargs = kwargs

    @property
    def embedding_(self) -> Coordinates:
        """Return (n, d) coordinates; a copy, which later passes do not change."""
        self._check_initialized()
        return self._coordinates.copy()

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Return figures of the fit so far, a line every few passes."""
        self._check_initialized()
        return self._history

    @property
    def meta_(self) -> dict[str, Any]:
        """Return the newest figures."""
        self._check_initialized()
        return self._meta

    def initialize(self, X_train: ArrayLike, embedding: ArrayLike | None = None) -> Self:
        """Start at an `embedding` (n, d), or at random."""
        if self.n is None or self.d is None:
            raise SalmonError("Say how many targets and dimensions there are.", hint="OfflineEmbedding(n=…, d=…).")
        self._noise = self._named_noise()
        if embedding is None:
            self._coordinates = 0.1 * np.random.default_rng(self.random_state).standard_normal((self.n, self.d))
        else:
            self._coordinates = _given(embedding, self.n, self.d)
        self._warm = embedding is not None
        self._history: list[dict[str, Any]] = []
        self._meta: dict[str, Any] = {"pf_calls": 0, "num_grad_comps": 0, "elapsed_time": 0.0}
        self._answers = len(np.asarray(X_train))
        self.initialized_ = True
        return self

    def partial_fit(self, X_train: ArrayLike) -> Self:
        """Do a few passes through rows [head, winner, loser], continuing from the present embedding."""
        if not getattr(self, "initialized_", False):
            self.initialize(X_train)
        self._pass_over(self._rows(X_train), self._coordinates, n_starts=0, passes=_PASSES)
        return self

    def fit(
        self,
        X_train: ArrayLike,
        X_test: ArrayLike,
        embedding: ArrayLike | None = None,
        get_stats: Callable[..., dict[str, Any]] | None = None,
        **stats_kwargs: Any,
    ) -> Self:
        """Fit rows [head, winner, loser] of `X_train` until nothing is gained, judging by `X_test` on the way.

        `get_stats(embedding=…, X_test=…, **stats_kwargs)` may add figures to each line of the history.
        """
        self.initialize(X_train, embedding)
        rows, held_out = self._rows(X_train), self._rows(X_test)
        start = self._coordinates if self._warm else None
        converged = False
        while not converged:
            left = min(self.max_epochs, _MOST_PASSES) - self._meta["num_grad_comps"] // max(1, len(rows))
            converged = self._pass_over(rows, start, n_starts=None if start is None else 0, passes=min(_PASSES, left))
            start = self._coordinates
            line = dict(self._meta)
            for name, some in (("train", rows), ("test", held_out)):
                line[f"score_{name}"], line[f"loss_{name}"] = self._score(some)
            if get_stats is not None:
                line |= {
                    f"stats__{name}": figure
                    for name, figure in get_stats(embedding=self.embedding_, X_test=held_out, **stats_kwargs).items()
                }
            self._history.append(line)
            converged = converged or left <= _PASSES
        return self

    def score(self, X: ArrayLike) -> float:
        """Return the accuracy: the share of rows [head, winner, loser] whose winner lies nearer. **Larger is better.**

        It is not a loss: that is `meta_["score__loss"]` afterwards, the mean −log of the probability of the answers.
        """
        self._check_initialized()
        share, loss = self._score(X)
        self._meta |= {"score__acc": share, "score__loss": loss}
        return share

    def _score(self, X: ArrayLike) -> tuple[float, float]:
        """Return (accuracy, loss); scripts that stop early by themselves call it under this name."""
        rows = self._rows(X)
        return accuracy(self._coordinates, rows), log_loss(self._coordinates, rows, noise=self._noise)

    def _pass_over(
        self, rows: NDArray[np.int32], start: Coordinates | None, *, n_starts: int | None, passes: int
    ) -> bool:
        """Do some passes and return whether nothing is to be gained by more."""
        assert self.n is not None  # noqa: S101 - `initialize` has seen to it
        assert self.d is not None  # noqa: S101
        began = time.perf_counter()
        counted = 0

        def count(_coordinates: Coordinates, _objective: float) -> None:
            nonlocal counted
            counted += 1

        found = fit(
            rows, self.n, self.d, noise=self._noise, ridge=_RIDGE, start=start, n_starts=n_starts,
            max_iter=max(1, passes), seed=self.random_state or 0, callback=count,
        )  # fmt: skip
        self._coordinates = found.coordinates
        gradients = self._meta["num_grad_comps"] + max(1, counted) * len(rows)
        self._meta |= {
            "pf_calls": self._meta["pf_calls"] + 1,
            "k": self._meta["pf_calls"],
            "num_grad_comps": gradients,
            "_epochs": gradients / max(1, len(rows)),
            "elapsed_time": self._meta["elapsed_time"] + time.perf_counter() - began,
            "train_data": len(rows),
            "n": self.n,
            "d": self.d,
            "max_epochs": self.max_epochs,
            "verbose": self.verbose,
            "ident": self.ident,
        }
        return found.converged

    def _rows(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return rows that are triplets; those that name a target twice are left out with a warning."""
        rows = np.asarray(X)
        if rows.ndim == 2 and rows.shape[1] == 3:
            twice = (rows[:, 0] == rows[:, 1]) | (rows[:, 0] == rows[:, 2]) | (rows[:, 1] == rows[:, 2])
            if twice.any():
                warnings.warn(f"{twice.sum():,} rows name a target twice and are left out.", stacklevel=3)
                rows = rows[~twice]
        return check_triplets(rows, self.n)

    def _named_noise(self) -> NoiseModel:
        parameters = {
            name: self.kwargs[f"module__{name}"]
            for name in _PARAMETERS
            if self.kwargs.get(f"module__{name}") is not None
        }
        return noise_model(self.noise_model, **parameters)

    def _check_initialized(self) -> None:
        if not getattr(self, "initialized_", False):
            raise NotFittedError("There is no embedding yet: call fit, partial_fit or initialize first.")


def join(embedding: ArrayLike, targets: Sequence[Any]) -> Any:
    """Return a pandas table with a row a target: columns x, y, z, dim4, … and target."""
    try:
        import pandas as pd
    except ImportError as error:
        raise SalmonError(
            "A table needs pandas, which is not installed here.",
            hint="pip install pandas; or take embedding_ and the targets side by side.",
        ) from error
    coordinates = np.asarray(embedding)
    if coordinates.ndim != 2 or len(coordinates) != len(targets):
        raise SalmonError(f"The embedding {coordinates.shape} does not have a row for each of {len(targets)} targets.")
    names = ("x", "y", "z", *(f"dim{place}" for place in range(4, coordinates.shape[1] + 1)))
    columns: dict[str, Any] = {name: coordinates[:, place] for place, name in enumerate(names[: coordinates.shape[1]])}
    return pd.DataFrame({**columns, "target": list(targets)})


def _given(embedding: Any, n: int, d: int) -> Coordinates:
    """(n, d) coordinates from an array or a table; of a table, the columns that exports and `join` give coordinates."""
    if hasattr(embedding, "columns"):
        known = [str(place) for place in range(d)], ["x", "y", "z", *(f"dim{place}" for place in range(4, d + 1))][:d]
        named = [str(column) for column in embedding.columns]
        wanted = next((names for names in known if set(names) <= set(named)), None)
        if wanted is not None:
            embedding = np.asarray(embedding)[:, [named.index(name) for name in wanted]]
    start = np.array(embedding, dtype=np.float64)
    if start.shape != (n, d) or not np.isfinite(start).all():
        raise SalmonError(f"The embedding has the shape {start.shape}; {(n, d)} numbers are wanted.", where="embedding")
    # A tenth of the typical distance at least, or the first pass could not tell directions apart.
    return start if np.ptp(start) > 1e-9 / sqrt(n) else start + 1e-3 * np.random.default_rng(0).standard_normal((n, d))
