"""The checks of a noise model's parameters."""

from math import isfinite

from salmon.errors import SalmonError


def positive(name: str, value: float) -> None:
    """Refuse a parameter that is not a finite number above 0, in a sentence."""
    if not (isfinite(value) and value > 0):
        raise SalmonError(f"{name} is {value}, but must be a number above 0.", where=name)
