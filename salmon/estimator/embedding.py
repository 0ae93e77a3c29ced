"""Fit an embedding behind scikit-learn's interface: `OrdinalEmbedding().fit(triplets).embedding_`."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from salmon.errors import SalmonError, TripletError
from salmon.estimator.coding import codes_of, indices_of, named_noise, names_in, triplets_from
from salmon.estimator.cross_validation import choose_noise, held_out_split, noise_candidates
from salmon.export.map_drawing import MapDrawing
from salmon.geometry import Coordinates, centre, principal_axes
from salmon.learning import Triplets, accuracy, check_triplets, fit, log_loss
from salmon.learning.features import Features, learn_prior
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.objective import objective_of
from salmon.learning.refit import best_scale, spectral_start
from salmon.learning.uncertainty import position_covariance
from salmon.noise import NoiseModel
from salmon.parallel import Executor, on_executor

# Iterations from every start before early stopping follows the best of them.
_SCOUTING = 10
# Answers a step of a fit in batches for which only the averaging or the compression was given.
_BATCH = 4096


class OrdinalEmbedding(BaseEstimator):
    """Positions for n targets such that answers of the kind "a is more like h than b is" come out right.

    Parameters
    ----------
    n_components : int
        Dimensions d.
    noise : str, NoiseModel or None
        How distances become answers: "TSTE", "STE", "CKL", "GNMDS", "SOE", "PowerTSTE" or "Logistic", or a model of
        `salmon.noise` with parameters of its own. None is power t-STE whose exponent and lapse are learned from the
        answers (with `early_stopping` or in batches: k = .85 and a lapse of 7 %).
    random_state : int, RandomState or None
        Draws random starts and held-out answers. It never shares numbers with a truth drawn from the same seed.
    n_init : int or None
        Starts besides `init` and the one that `partial_fit` continues from; None decides by the number of answers.
    init : (n, d) array or None
        Positions to start from, in the order of `labels_` where targets have names.
    max_iter : int
        L-BFGS iterations from each start.
    tolerance : float
        Stop where an iteration gains less than this share of the objective, or no slope is steeper.
    lapse : float, "held-out" or None
        Share of answers given without looking. "held-out" chooses it (and k of power t-STE) by the likelihood of
        held-out answers in five folds; let them be answers to random queries. None keeps the lapse of a given model,
        takes 5 % for a model given by its name, and learns it where the noise is learned. A number is kept there too.
    ridge : float
        The penalty ridge/2 · |coordinates|² against a loss summed over answers; where the noise is learned, the ridge
        at k = .85 (a lighter tail takes more).
    n_targets : int or None
        How many targets there are; None takes the largest index plus one. Give it for cross-validation, where a fold
        may lack the last target.
    early_stopping : bool
        Keep back `validation_share` of the answers, stop when their log-loss has not fallen for `n_iter_no_change`
        iterations, and return to the iteration where it was lowest.
    validation_share : float
        Share of the answers held out by early stopping, whole groups of the same three targets at a time.
    n_iter_no_change : int
        Patience of early stopping, in iterations.
    batch_size : int, salmon.training.BatchSize or None
        Fit by Adam on so many answers a step, or as many as a rule says (`GeoDamp(4096, delay=5)`), instead of L-BFGS
        on all of them: for more answers than pay in one piece, and for many machines.
    averaging, compression, step_size, epochs
        Of a fit in batches: how workers agree, how gradients travel (values of `salmon.training`), its steps and
        passes.
    executor : salmon.parallel.Executor, Dask client or None
        Where the work is done; None is this process.
    n_restarts : int or None
        The earlier name of `n_init`; it still works, with a warning.

    Attributes
    ----------
    embedding_ : (n, d) float64, a new copy at every access
    labels_ : (n,) the names of the targets, sorted, where answers name them; otherwise their indices
    noise_ : the noise model that was fitted or learned, `ridge_` the ridge of that fit, `noise_losses_` the held-out
        log-loss of each one tried (empty if none)
    history_ : list of dict, one an iteration: start, iteration, objective, and the held-out log-loss and accuracy where
        answers were held out
    feature_weight_ : the share of the positions' variance that features explain; None without features
    uncertainty_ : (n, d, d) covariance of each target's position, worked out when first asked for
    n_iter_, objective_, converged_, n_features_in_ (always 3), classes_ (how y writes "right won" and "left won")
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        noise: str | NoiseModel | None = None,
        random_state: Any = None,
        n_init: int | None = None,
        init: ArrayLike | None = None,
        max_iter: int = 500,
        tolerance: float = 1e-6,
        lapse: float | str | None = None,
        ridge: float = 0.03,
        n_targets: int | None = None,
        early_stopping: bool = False,
        validation_share: float = 0.1,
        n_iter_no_change: int = 10,
        batch_size: Any = None,
        averaging: Any = None,
        compression: Any = None,
        step_size: float = 0.05,
        epochs: float = 10,
        executor: Executor | Any | None = None,
        n_restarts: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.noise = noise
        self.random_state = random_state
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.lapse = lapse
        self.ridge = ridge
        self.n_targets = n_targets
        self.early_stopping = early_stopping
        self.validation_share = validation_share
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.averaging = averaging
        self.compression = compression
        self.step_size = step_size
        self.epochs = epochs
        self.executor = executor
        self.n_restarts = n_restarts

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, features: ArrayLike | None = None) -> Self:
        """Fit rows [head, winner, loser], or rows [head, left, right] with y (see `predict`), forgetting any earlier
        fit. Targets are indices from 0, or names.

        `features` (n, p) say what is known about the targets, in the order of `labels_`: positions are drawn towards a
        linear map of them, as far as the answers support it (`feature_weight_`).
        """
        self._see(X, reset=True)
        self._names: NDArray[np.str_] | None = None
        rows = triplets_from(self._indices(X, learn=True), y, self.n_targets)
        self.classes_ = codes_of(y)
        n = self.n_targets or max(int(rows.max(initial=0)) + 1, 0 if self._names is None else len(self._names))
        self._features = None if features is None else Features.of(features, n)
        return self._fit(rows, n, start=self._start(n))

    def fit_transform(
        self, X: ArrayLike, y: ArrayLike | None = None, *, features: ArrayLike | None = None
    ) -> Coordinates:
        """Fit, and return the coordinates (n, d) of the targets."""
        return self.fit(X, y, features=features).embedding_

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Add answers to all that were seen and continue from the embedding so far; new targets start at its centre."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        self._see(X, reset=False)
        rows = np.concatenate([self._triplets, triplets_from(self._indices(X, learn=True), y, self.n_targets)])
        known = self._coordinates
        n = self.n_targets or max(len(known), int(rows.max()) + 1)
        if self._features is not None and self._features.n != n:
            raise SalmonError(
                f"These answers name {n} targets, but the features are those of {self._features.n}.",
                hint="Call fit with all answers and the features of all targets.",
            )
        added = 1e-3 * np.random.default_rng(self._seed()).standard_normal((n - len(known), known.shape[1]))
        return self._fit(rows, n, start=np.concatenate([known, added]))

    def plot(
        self,
        names: Sequence[str] | None = None,
        *,
        pictures: Mapping[int, bytes | Path] | None = None,
        groups: Sequence[str] | None = None,
        width_mm: float = 174.0,
        uncertainty: bool = False,
    ) -> MapDrawing:
        """Return the map, which notebooks show and `.save("map.pdf")` writes (also .svg and .png).

        `names` (n,) label the targets, otherwise `labels_`; `pictures` are files by index; `groups` (n,) give each
        target a shape and a colour, "" for none; `uncertainty` draws the ellipses that hold each position with 68 %.
        """
        from salmon.export.map_drawing import MapGroups, draw_map

        check_is_fitted(self)
        coordinates = self.embedding_
        labels = [str(name) for name in (self.labels_ if names is None else names)]
        of = [str(group) for group in groups] if groups is not None else []
        for what, given in (("names", labels), ("groups", of)):
            if (what == "names" or groups is not None) and len(given) != len(coordinates):
                raise SalmonError(
                    f"{what} has {len(given):,} entries, but the embedding has {len(coordinates):,} targets.",
                    hint=f"Give one entry of {what} for each target, in the order of labels_.",
                )
        known = tuple(sorted(set(of) - {""}))
        numbers = tuple(known.index(group) if group else -1 for group in of)
        return draw_map(
            principal_axes(coordinates) if not uncertainty else coordinates,
            labels,
            pictures=pictures,
            covariance=self.uncertainty_ if uncertainty else None,
            groups=MapGroups(numbers, known) if groups is not None else None,
            width_mm=width_mm,
        )

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return (m,) which foot of rows [head, left, right] lies nearer, in the words of the y that was fitted.

        Without y: 1 where the second column's target is nearer, 0 where the third column's is.
        """
        check_is_fitted(self)
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]

    def predict_proba(self, X: ArrayLike) -> Coordinates:
        """Return (m, 2) probabilities that right and that left wins, in the order of `classes_`, for rows [head, left,
        right].
        """
        check_is_fitted(self)
        self._see(X, reset=False)
        rows = self._known(check_triplets(self._indices(X)))
        heads, left, right = self._coordinates[rows.T]
        chance = self.noise_.probability(((heads - left) ** 2).sum(axis=1), ((heads - right) ** 2).sum(axis=1))
        return np.column_stack([1 - chance, chance]).astype(np.float64)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of answers whose winner lies nearer the head.

        It goes from 0 to 1, and **larger is better**: it is not a loss, so keep the fit whose score is largest. A tie
        counts one half.
        """
        check_is_fitted(self)
        self._see(X, reset=False)
        return accuracy(self._coordinates, self._known(triplets_from(self._indices(X), y)))

    def log_loss(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean −log probability of the answers, in nats: smaller is better, log 2 is guessing."""
        check_is_fitted(self)
        self._see(X, reset=False)
        return log_loss(self._coordinates, self._known(triplets_from(self._indices(X), y)), noise=self.noise_)

    @property
    def embedding_(self) -> Coordinates:
        """Return (n, d) coordinates, centred; a copy, so that changing it does not change the estimator."""
        check_is_fitted(self)
        return self._coordinates.copy()

    @property
    def labels_(self) -> NDArray[Any]:
        """Return (n,) the names of the targets in the order of `embedding_`, or their indices where they have none."""
        check_is_fitted(self)
        return np.arange(len(self._coordinates)) if self._names is None else self._names.copy()

    def to_frame(self) -> Any:
        """Return the coordinates as a pandas data frame: a row a target, named by its label."""
        import pandas as pd

        columns = [f"x{axis + 1}" for axis in range(self.embedding_.shape[1])]
        return pd.DataFrame(self.embedding_, index=pd.Index(self.labels_, name="target"), columns=columns)

    @property
    def uncertainty_(self) -> Coordinates:
        """Return the (n, d, d) covariance of each target's position, up to shifts, rotations and the size of the map.

        Answers do not determine where the map lies and how it is turned, and heavy-tailed noise models (t-STE, CKL)
        hardly its size. The covariances are those of the Laplace posterior times one factor, which is found by fitting
        halves of the answers: four more fits when this is first asked for.
        """
        check_is_fitted(self)
        if self._uncertainty is None:
            self._uncertainty = position_covariance(
                self._coordinates, self._triplets, self.noise_, ridge=self.ridge_, precision=self._found_precision,
                seed=self._fit_seed, executor=on_executor(self.executor),
            )  # fmt: skip
        return self._uncertainty.copy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_coordinates")

    def __sklearn_clone__(self) -> Self:
        """Return a copy of the parameters. The executor is shared: a cluster cannot be copied, and need not be."""
        parameters = self.get_params(deep=False)
        executor = parameters.pop("executor")
        copies: dict[str, Any] = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(**copies, executor=executor)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.required = False
        tags.non_deterministic = False
        return tags

    def _fit(self, rows: Triplets, n: int, start: Coordinates | None) -> Self:
        if not len(rows):
            raise TripletError("There are no answers to fit.", hint="Give at least one row [head, winner, loser].")
        if not 0 < self.validation_share < 1:
            raise SalmonError(
                f"A validation_share of {self.validation_share} holds out nothing or everything.",
                hint="Give a number between 0 and 1.",
            )
        seed = self._fit_seed = self._seed()
        self.noise_losses_: dict[NoiseModel, float] = {}
        self.noise_, self.ridge_ = named_noise(self.noise, self.lapse), self.ridge
        if isinstance(self.lapse, str):
            self.noise_, self.noise_losses_ = choose_noise(
                rows, n, self.n_components, noise_candidates(self.noise_),
                ridge=self.ridge, seed=seed, max_iter=self.max_iter, executor=on_executor(self.executor),
            )  # fmt: skip
        self._precision = self._found_precision = None
        self.feature_weight_: float | None = None
        in_batches = self.batch_size is not None or self.averaging is not None or self.compression is not None
        if self._features is not None:
            if in_batches:
                raise SalmonError(
                    "Features do not work with a fit in batches.",
                    hint="Leave out features, or batch_size and averaging.",
                )
            prior = learn_prior(
                rows,
                self._features,
                self.n_components,
                ridge=self.ridge,
                seed=seed,
                executor=on_executor(self.executor),
            )
            self._precision, self.feature_weight_ = prior.precision, prior.weight
            start = prior.start if start is None else start
        if in_batches:
            self._coordinates = self._fit_in_batches(rows, n, start, seed)
        elif self.early_stopping:
            self._coordinates = self._stopped_fit(rows, n, start, seed)
        else:
            history = _History()
            learn = self.noise is None and not isinstance(self.lapse, str)
            self._coordinates = self._descend(
                rows, n, start, self._starts, seed, self.max_iter, history.record, learn=learn
            )
            self.history_ = history.lines
        self._triplets = rows
        self._uncertainty: Coordinates | None = None
        self.n_iter_ = len(self.history_)
        return self

    def _descend(
        self, rows: Triplets, n: int, start: Coordinates | None, n_starts: int | None, seed: int, max_iter: int,
        callback: Any, stop: Any = None, *, learn: bool = False,
    ) -> Coordinates:  # fmt: skip
        with_noise = (
            partial(fit_with_learned_noise, lapse=cast("float | None", self.lapse))
            if learn
            else partial(fit, noise=self.noise_)
        )
        found = with_noise(
            rows, n, self.n_components, ridge=self.ridge, precision=self._precision, start=start, n_starts=n_starts,
            max_iter=max_iter, tolerance=self.tolerance, seed=seed, executor=on_executor(self.executor), callback=callback, stop=stop,
        )  # fmt: skip
        self.noise_, self.ridge_, self._found_precision = found.noise, found.ridge, found.precision
        self.objective_, self.converged_ = found.objective, found.converged
        return found.coordinates

    def _fit_in_batches(self, rows: Triplets, n: int, start: Coordinates | None, seed: int) -> Coordinates:
        """Train the embedding as a torch module, in this process or by all workers of the cluster."""
        if self.early_stopping:
            raise SalmonError(
                "early_stopping does not work with a fit in batches.",
                hint="Leave out early_stopping, or batch_size and averaging.",
            )
        # Imported here, because torch is needed by fits in batches alone.
        from salmon.training.embedding import fit_embedding
        from salmon.training.groups import as_group

        objective = objective_of(rows, n, self.noise_, ridge=self.ridge)
        if start is None:
            start = best_scale(objective, spectral_start(rows, n, self.n_components, seed))
        coordinates, trained = fit_embedding(
            rows, start, self.noise_, ridge=self.ridge, step_size=self.step_size, group=as_group(self.executor),
            seed=seed, batch_size=_BATCH if self.batch_size is None else self.batch_size, averaging=self.averaging,
            compression=self.compression, epochs=self.epochs,
        )  # fmt: skip
        self.objective_, self.converged_ = objective(coordinates)[0], True
        self.history_ = [
            {"start": 0, "iteration": row["step"], "objective": row["loss"], **row} for row in trained.history.rows
        ]
        return coordinates

    def _stopped_fit(self, rows: Triplets, n: int, start: Coordinates | None, seed: int) -> Coordinates:
        """Fit every start for a few iterations, then follow the best one while the held-out log-loss falls."""
        held_out = held_out_split(rows, self.validation_share, np.random.default_rng(seed))
        fitted = rows[~held_out]
        scouted = self._descend(fitted, n, start, self._starts, seed, min(_SCOUTING, self.max_iter), None)
        history = _JudgedHistory(scouted, rows[held_out], self.noise_, self.n_iter_no_change)
        self._descend(fitted, n, scouted, 0, seed, self.max_iter, history.record, history.exhausted)
        self.history_ = history.lines
        return centre(history.best)

    def _indices(self, X: ArrayLike, *, learn: bool = False) -> ArrayLike:
        """Return answers with indices where they name their targets; with `learn`, names
        that are new get the next ones.
        """
        names = names_in(X)
        if names is None:
            return X
        if learn:
            known = getattr(self, "_names", None)
            fresh = np.unique(names if known is None else names[~np.isin(names, known)])
            self._names = fresh if known is None else np.concatenate([known, fresh])
        return indices_of(names, getattr(self, "_names", None))

    def _start(self, n: int) -> Coordinates | None:
        """Return the positions to start from, checked; None where none were given."""
        if self.init is None:
            return None
        start = np.array(self.init, dtype=np.float64)
        if start.shape != (n, self.n_components) or not np.isfinite(start).all():
            raise SalmonError(
                f"init has the shape {start.shape}, or values that are not finite.",
                hint=f"Give a finite array of shape {(n, self.n_components)}: a row a target, in the order of labels_.",
            )
        return start

    @property
    def _starts(self) -> int | None:
        if self.n_restarts is None:
            return self.n_init
        warnings.warn("n_restarts is called n_init now.", FutureWarning, stacklevel=2)
        return self.n_restarts

    def _known(self, rows: Triplets) -> Triplets:
        n = len(self._coordinates)
        unknown = np.flatnonzero((rows >= n).any(axis=1))
        if len(unknown):
            raise TripletError(
                f"Row {unknown[0]} {rows[unknown[0]].tolist()} names a target outside the {n} that were fitted.",
                hint="Pass n_targets to the estimator if some targets do not occur in the fitted answers.",
            )
        return rows

    def _see(self, X: ArrayLike, *, reset: bool) -> None:
        """Let scikit-learn note (or compare) the number and names of the columns; `check_triplets` checks the rest."""
        if issparse(X):
            raise TripletError(
                "Sparse input is not supported.", hint="Give a dense (m, 3) array: triplets hold no gaps."
            )
        if np.iscomplexobj(X):
            raise TripletError("Complex data not supported.", hint="Targets are whole numbers that count from 0.")
        if np.ndim(cast("Any", X)) == 2:
            validate_data(self, cast("Any", X), reset=reset, skip_check_array=True)

    def _seed(self) -> int:
        """Return a seed that `default_rng(random_state)` does not use, because the truth may have been drawn from
        that.
        """
        state = self.random_state
        if not isinstance(state, int | np.integer):
            state = check_random_state(state).randint(2**31)
        return int(np.random.SeedSequence(int(state), spawn_key=(1,)).generate_state(1)[0])


class _History:
    """A line an iteration: which start, which iteration of it, and the objective reached."""

    def __init__(self) -> None:
        self.lines: list[dict[str, float]] = []

    def record(self, coordinates: Coordinates, objective: float) -> None:
        """Note one iteration; the coordinates are not kept."""
        del coordinates
        self._note(objective)

    def _note(self, objective: float, **judged: float) -> None:
        last = self.lines[-1] if self.lines else {"start": 0, "iteration": 0, "objective": np.inf}
        # Within one descent the objective never rises: where it does, the next start has begun.
        new = objective > last["objective"]
        self.lines.append(
            {
                "start": last["start"] + new,
                "iteration": 1 if new else last["iteration"] + 1,
                "objective": objective,
                **judged,
            }
        )


class _JudgedHistory(_History):
    """A history that judges every iteration by held-out answers and remembers the likeliest coordinates."""

    def __init__(self, start: Coordinates, held_out: Triplets, noise: NoiseModel, patience: int) -> None:
        super().__init__()
        self.best = start
        self._best_loss = log_loss(start, held_out, noise=noise)
        self._held_out = held_out
        self._noise = noise
        self._patience = patience
        self._waited = 0

    def record(self, coordinates: Coordinates, objective: float) -> None:
        """Note one iteration with its held-out log-loss and accuracy."""
        loss = log_loss(coordinates, self._held_out, noise=self._noise)
        self._note(objective, held_out_log_loss=loss, held_out_accuracy=accuracy(coordinates, self._held_out))
        if loss < self._best_loss:
            self.best, self._best_loss, self._waited = coordinates.copy(), loss, 0
        else:
            self._waited += 1

    def exhausted(self) -> bool:
        """Whether the held-out log-loss has not fallen for as many iterations as patience allows."""
        return self._waited >= self._patience
