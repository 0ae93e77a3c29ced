"""Any torch module as a scikit-learn estimator, trained on a Dask cluster or in this process."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from salmon.errors import SalmonError
from salmon.training.groups import as_group
from salmon.training.history import TrainingHistory
from salmon.training.loop import fit

#: Parameters whose own parameters can be set with a double underscore.
NESTED = ("module", "optimizer", "loss", "batch_size", "averaging", "compression")


class _DaskEstimator(BaseEstimator):
    """Common base of classifier and regressor; `DaskClassifier` documents the parameters."""

    _default_loss: Any = None
    score: Any

    def __init__(
        self,
        module: Any,
        *,
        loss: Any = None,
        optimizer: Any = torch.optim.SGD,
        max_epochs: float = 20,
        batch_size: Any = 32,
        averaging: Any = None,
        compression: Any = None,
        monitors: Any = (),
        policies: Any = (),
        executor: Any = None,
        random_state: Any = None,
        checkpoint: Any = None,
        resume: bool = False,
        progress: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = 1e-4,
        **nested: Any,
    ) -> None:
        self.module = module
        self.loss = loss
        self.optimizer = optimizer
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.averaging = averaging
        self.compression = compression
        self.monitors = monitors
        self.policies = policies
        self.executor = executor
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.resume = resume
        self.progress = progress
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        for name, value in nested.items():
            _check_nested(name)
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, including those with a double underscore."""
        del deep  # nested values are not scikit-learn estimators
        return {**super().get_params(deep=False), **self._nested()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `batch_size__delay=60` sets the delay of the batch size."""
        plain = {name: value for name, value in params.items() if "__" not in name}
        for name, value in params.items():
            if name not in plain:
                _check_nested(name)
                setattr(self, name, value)
        super().set_params(**plain)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train from scratch; the loss of each example is multiplied by its weight."""
        for name in ("module_", "_state", "history_", "validation_scores_"):
            vars(self).pop(name, None)
        inputs, targets = self._inputs(X), self._targets(y, reset=True)
        weights = _check_weights(sample_weight, len(inputs))
        if self.early_stopping:
            return self._train_until_no_change(X, y, inputs, targets, weights)
        return self._train(inputs, targets, weights, epochs=float(self.max_epochs))

    def _train_until_no_change(
        self, X: ArrayLike, y: ArrayLike, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None
    ) -> Self:
        """Train epoch by epoch until the score on held-out examples no longer rises; keep the best module."""
        held_count = round(self.validation_fraction * len(inputs))
        if not 0 < held_count < len(inputs) or self.n_iter_no_change < 1 or self.resume:
            raise SalmonError(
                f"Early stopping cannot hold out {held_count} of {len(inputs)} examples, wait {self.n_iter_no_change} epochs"
                f"{' and resume' if self.resume else ''}.",
                hint="Give 0 < validation_fraction < 1, n_iter_no_change of at least 1, and resume=False.",
                where="early_stopping",
            )
        order = torch.from_numpy(check_random_state(self.random_state).permutation(len(inputs)))
        held, kept = order[:held_count], order[held_count:]
        held_X, held_y = np.asarray(X)[held.numpy()], np.asarray(y)[held.numpy()]
        best, waited, state, scores = -np.inf, 0, {}, []
        epoch = 0
        while epoch < self.max_epochs and waited < self.n_iter_no_change:
            epoch += 1
            self._train(inputs[kept], targets[kept], None if weights is None else weights[kept], epochs=float(epoch))
            scores.append(self.score(held_X, held_y))
            waited = 0 if scores[-1] > best + self.tol else waited + 1
            if scores[-1] > best:
                best, state = scores[-1], deepcopy(self.module_.state_dict())
        self.module_.load_state_dict(state)
        self.validation_scores_ = scores
        return self

    def _train_epoch(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool) -> Self:
        """Train for one more epoch on these data."""
        inputs, targets = self._inputs(X), self._targets(y, reset=reset)
        weights = _check_weights(sample_weight, len(inputs))
        return self._train(inputs, targets, weights, epochs=1.0 if reset else self._state.progress.epoch + 1.0)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __sklearn_clone__(self) -> Self:
        """Return an estimator with copied parameters; only the executor is shared, as a cluster cannot be copied."""
        return type(self)(
            **{name: value if name == "executor" else deepcopy(value) for name, value in self.get_params().items()}
        )

    def _outputs(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        inputs = self._inputs(X)
        if inputs.shape[1:] != self._shape:
            raise SalmonError(
                f"X has examples of shape {tuple(inputs.shape[1:])}, but was trained on {tuple(self._shape)}.",
                where="X",
            )
        module = self.module_.eval()
        with torch.no_grad():
            return torch.cat([module(part) for part in _cast(module, inputs).split(1 << 13)])

    def _train(
        self, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None, *, epochs: float
    ) -> Self:
        if len(inputs) != len(targets):
            raise SalmonError(f"X has {len(inputs)} rows and y {len(targets)}.", hint="Give one target for each row.")
        continued = self.__sklearn_is_fitted__()
        if not continued:
            self._seed = int(check_random_state(self.random_state).randint(2**31))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._seed)
                module = self._build("module")
            module = deepcopy(module) if module is self.module else module
        else:
            module = self.module_
        loss, last = self._loss(), targets
        if weights is not None:
            loss, last = WeightedLoss(loss, targets.dtype, tuple(targets.shape[1:])), pack_weights(targets, weights)
        trained = fit(
            module, (_cast(module, inputs), last), partial(self.optimizer, **self._nested("optimizer")), as_group(self.executor),
            loss=loss, epochs=epochs, batch_size=self._build("batch_size"), averaging=self._build("averaging"),
            compression=self._build("compression"), monitors=self.monitors, policies=self.policies, seed=self._seed,
            start=self._state if continued else None, checkpoint=self.checkpoint,
            resume=self.resume and not continued, progress=self.progress,
        )  # fmt: skip
        self.module_, self._state, self._shape = module, trained.state, inputs.shape[1:]
        self.history_ = TrainingHistory((self.history_.rows if continued else ()) + trained.history.rows)
        self.n_features_in_ = int(inputs[0].numel())
        return self

    def _loss(self) -> Any:
        made = self.loss or self._default_loss
        return made(**{"reduction": "none", **self._nested("loss")}) if isinstance(made, type) else made

    def _build(self, name: str) -> Any:
        """Return a parameter with its nested parameters applied: a class is called with them,
        fields of a dataclass are replaced.
        """
        value, fields = getattr(self, name), self._nested(name)
        if isinstance(value, torch.nn.Module) or value is None:
            if fields:
                raise SalmonError(
                    f"{name} is {value!r}, which has no parameter {name}__{next(iter(fields))}.", where=name
                )
            return value
        try:
            if callable(value):
                return value(**fields)
            return replace(value, **fields) if fields else value
        except TypeError as error:
            raise SalmonError(f"{name} cannot be built from {fields}: {error}.", where=name) from error

    def _nested(self, prefix: str = "") -> dict[str, Any]:
        """Return the parameters with a double underscore; given a prefix, only those that
        start with it, without the prefix.
        """
        found = {name: value for name, value in vars(self).items() if name.split("__")[0] in NESTED and "__" in name}
        if not prefix:
            return found
        return {name.split("__", 1)[1]: value for name, value in found.items() if name.split("__")[0] == prefix}

    def _inputs(self, X: ArrayLike) -> torch.Tensor:
        tensor = X if isinstance(X, torch.Tensor) else torch.as_tensor(np.asarray(X))
        if tensor.ndim < 2 or not len(tensor):
            raise SalmonError(
                f"X of shape {tuple(tensor.shape)} has no examples.", hint="Give one row for each example."
            )
        # Integers are tokens, for which an embedding layer needs integers; truth values are numbers.
        return tensor if tensor.is_floating_point() else tensor.float() if tensor.dtype == torch.bool else tensor.long()

    def _targets(self, y: ArrayLike, *, reset: bool) -> torch.Tensor:
        raise NotImplementedError


class DaskClassifier(ClassifierMixin, _DaskEstimator):
    """Classifier around a torch module that returns a score for each class.

    The default loss is the cross-entropy. `classes_` holds the labels in the order of the module's outputs.

    Parameters
    ----------
    module : class, function or torch.nn.Module
        What is trained; a class or function is called with the `module__…` parameters. A module is copied, not
        modified.
    loss : class of torch.nn, or function (output, target) -> (b,)
        A class is called with `loss__…` and `reduction="none"`.
    optimizer : class of torch.optim, called with `optimizer__…`
    max_epochs : passes over the data
    batch_size : int, BatchSize or a class of them; `batch_size__delay=60` sets a field
    averaging, compression : how replicas are synchronised and gradients compressed; `averaging__period=8` sets a field
    monitors, policies : what is measured, and how the next step is adjusted to it
    executor : Dask client, executor, group or None (this process)
    random_state : int, RandomState or None
    checkpoint : folder in which each epoch is saved; an older checkpoint in it is replaced
    resume : whether fit continues from the checkpoint; it is refused for other data or settings, so random_state must
        be a number
    progress : whether to show a progress bar on the terminal
    early_stopping : whether to hold out `validation_fraction` of the examples, stop once their score has not risen by
        `tol` for `n_iter_no_change` epochs, and keep the best module

    Integers in X stay integers, as an embedding layer needs them; numbers with a fraction get the precision of the
    module.

    Attributes
    ----------
    module_ : the trained module; history_ : a `TrainingHistory`; n_features_in_; validation_scores_ : of each epoch, if
        stopped early
    """

    _default_loss = torch.nn.CrossEntropyLoss

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train for one more epoch on these data; `classes` lists all labels if the first y may lack some."""
        reset = not self.__sklearn_is_fitted__()
        if reset and classes is not None:
            self._labels = np.unique(np.asarray(classes))
        return self._train_epoch(X, y, sample_weight, reset=reset)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label with the highest score for each row (m,)."""
        places = self._outputs(X).argmax(dim=1).numpy()
        return self.classes_[places]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return probabilities (m, classes) in the order of `classes_`."""
        return torch.softmax(self._outputs(X).float(), dim=1).numpy()

    def _targets(self, y: ArrayLike, *, reset: bool) -> torch.Tensor:
        labels = np.asarray(y).ravel()
        if reset:
            known: Any = vars(self).pop("_labels", None)
            self.classes_ = np.unique(labels) if known is None else known
        places = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[places] != labels)
        if len(unknown):
            raise SalmonError(
                f"Row {unknown[0]} of y is {labels[unknown[0]]!r}, which is not one of {self.classes_.tolist()}.",
                hint="Pass all labels as classes to the first partial_fit.",
                where="y",
            )
        return torch.from_numpy(places.astype(np.int64))


class DaskRegressor(RegressorMixin, _DaskEstimator):
    """Regressor around a torch module; its parameters are those of `DaskClassifier`.

    The default loss is the squared error.
    """

    _default_loss = torch.nn.MSELoss

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train for one more epoch on these data."""
        return self._train_epoch(X, y, sample_weight, reset=not self.__sklearn_is_fitted__())

    def predict(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return predictions (m,) or (m, k), in the shape of the y that was fitted."""
        outputs = self._outputs(X).float().numpy()
        return outputs.ravel() if self._flat else outputs

    def _targets(self, y: ArrayLike, *, reset: bool) -> torch.Tensor:
        values = torch.as_tensor(np.asarray(y), dtype=torch.float32)
        if reset:
            self._flat = values.ndim == 1
        return values.reshape(-1, 1) if values.ndim == 1 else values


@dataclass(frozen=True)
class WeightedLoss:
    """A loss multiplied by the weight of each example, which `pack_weights` has put before its target."""

    loss: Any
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __call__(self, output: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        """Return the weighted losses (b,)."""
        target = packed[:, 1:].reshape(len(packed), *self.shape).to(self.dtype)
        losses = self.loss(output, target)
        if losses.ndim == 0:
            return losses  # refused by `fit`, with advice
        return losses.reshape(len(losses), -1).mean(dim=1) * packed[:, 0]


def pack_weights(targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return (m, 1 + k) weights and targets in float64, which is exact for all class indices."""
    return torch.cat([weights[:, None], targets.reshape(len(targets), -1).double()], dim=1)


def _check_weights(sample_weight: ArrayLike | None, examples: int) -> torch.Tensor | None:
    if sample_weight is None:
        return None
    weights = torch.as_tensor(np.asarray(sample_weight, dtype=np.float64))
    if weights.shape != (examples,) or not bool((weights.isfinite() & (weights >= 0)).all()):
        raise SalmonError(
            f"sample_weight of shape {tuple(weights.shape)} does not weight {examples} examples.",
            hint="Give one finite number of at least 0 for each row.",
            where="sample_weight",
        )
    return weights


def _cast(module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return inputs with a fraction in the precision of the module; integers stay as they are."""
    kinds = (each.dtype for each in module.parameters() if each.is_floating_point())
    return inputs.to(next(kinds, torch.float32)) if inputs.is_floating_point() else inputs


def _check_nested(name: str) -> None:
    prefix, _, field = name.partition("__")
    if prefix not in NESTED or not field:
        raise SalmonError(
            f"There is no parameter {name!r}.",
            hint=f"Names with a double underscore begin with one of {', '.join(NESTED)}.",
            where=name,
        )
