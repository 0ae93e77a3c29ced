"""A request as a course of steps: small pieces of work that travel to the workers, and what follows from all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from salmon.errors import SalmonError


@dataclass(frozen=True)
class Step:
    """One piece of work: `function(*shared, *arguments)`, a top-level function of plain values.

    With `after`, the outcome of that earlier step (counted from 0) is the last argument, and is not kept: `conclude`
    sees None in its place. `note` says to a reader what is being done.
    """

    note: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    after: int | None = None


@dataclass(frozen=True)
class Course:
    """All steps of a request, in order; `conclude` turns their outcomes into the result.

    `shared` are values that every step is given first: they travel to the workers once.
    """

    steps: tuple[Step, ...]
    conclude: Callable[[Sequence[Any]], Mapping[str, Any]]
    shared: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Failure:
    """What went wrong inside a step, as a sentence; workers that are lost are another matter."""

    sentence: str


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The outcome of a step on its worker, or its Failure."""
    try:
        return function(*arguments)
    except SalmonError as error:
        return Failure(str(error))
    except Exception as error:  # noqa: BLE001 - the outermost loop of the work: what goes wrong is an outcome too
        return Failure(f"The computation failed ({type(error).__name__}: {error}).")


def plain(value: Any) -> Any:
    """A result as JSON can hold it: arrays as lists, and nothing where a number is not finite; anything else is refused."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"A {type(value).__name__} cannot be part of a result")
