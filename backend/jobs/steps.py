"""The plan of a job: small steps that run on the workers, and how their outcomes become the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from salmon.errors import SalmonError


@dataclass(frozen=True)
class JobStep:
    """One step: `function(*shared, *arguments)`, a top-level function of plain values.

    With `after`, the outcome of that earlier step (counted from 0) is the last argument and is not kept: `conclude`
    sees None in its place. `note` tells the experimenter what is being done.
    """

    note: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    after: int | None = None


@dataclass(frozen=True)
class JobPlan:
    """The steps of a job, in order; `conclude` turns their outcomes into the result.

    `shared` are the first arguments of every step; they are sent to the workers once. `so_far` returns what is known
    after the first outcomes, where that is worth showing before the end.
    """

    steps: tuple[JobStep, ...]
    conclude: Callable[[Sequence[Any]], Mapping[str, Any]]
    shared: tuple[Any, ...] = ()
    so_far: Callable[[Sequence[Any]], Mapping[str, Any] | None] = lambda _: None


@dataclass(frozen=True)
class StepFailure:
    """An error inside a step, as a sentence. Lost workers are handled elsewhere."""

    sentence: str


def run_step(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step on its worker; return its outcome or its StepFailure."""
    try:
        return function(*arguments)
    except SalmonError as error:
        return StepFailure(str(error))
    except Exception as error:  # noqa: BLE001 - the outermost loop of a step: an error is an outcome too
        return StepFailure(f"The computation failed ({type(error).__name__}: {error}).")


def to_json_value(value: Any) -> Any:
    """Return a result as JSON can hold it: arrays as lists, null for numbers that are
    not finite; refuse anything else.
    """
    if isinstance(value, np.ndarray):
        return to_json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): to_json_value(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, np.generic):
        return to_json_value(value.item())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"A {type(value).__name__} cannot be part of a result")
