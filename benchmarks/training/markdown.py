"""Markdown tables of rows of figures."""

from collections.abc import Iterable, Sequence
from typing import Any

Document = dict[str, Any]
Rows = Iterable[dict[str, Any]]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = (f"| {' | '.join(line)} |" for line in (heads, *rows))
    first = next(lines)
    return "\n".join((first, "|" + "---|" * len(heads), *lines))


def of(document: Document, **wanted: Any) -> Rows:
    """The rows that have these values."""
    return (row for row in document["rows"] if all(row.get(name) == value for name, value in wanted.items()))


def whole(value: float) -> str:
    """With thousands apart."""
    return f"{value:,.0f}"


def two(value: float | None) -> str:
    """Two significant digits, but never fewer than the whole ones."""
    if value is None:
        return "–"
    return whole(value) if abs(value) >= 10 else f"{value:.2g}"


def small(value: float) -> str:
    """Four decimals, or two significant digits of what is smaller."""
    return f"{value:.4f}" if value >= 0.0005 else f"{value:.1e}"


def dash(value: float | None, form: str) -> str:
    """In a form, or a dash for what was not measured."""
    return "–" if value is None else format(value, form)
