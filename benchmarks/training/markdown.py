"""Format figures as Markdown tables."""

from collections.abc import Iterable, Sequence
from typing import Any

Document = dict[str, Any]
Rows = Iterable[dict[str, Any]]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (f"| {' | '.join(line)} |" for line in (heads, *rows))
    first = next(lines)
    return "\n".join((first, "|" + "---|" * len(heads), *lines))


def select_rows(document: Document, **wanted: Any) -> Rows:
    """Return the rows that have these values."""
    return (row for row in document["rows"] if all(row.get(name) == value for name, value in wanted.items()))


def whole(value: float) -> str:
    """Format a whole number with thousands separators."""
    return f"{value:,.0f}"


def two(value: float | None) -> str:
    """Format two significant digits, or all digits before the decimal point if there are more."""
    if value is None:
        return "–"
    return whole(value) if abs(value) >= 10 else f"{value:.2g}"


def small(value: float) -> str:
    """Format four decimals, or two significant digits of a smaller value."""
    return f"{value:.4f}" if value >= 0.0005 else f"{value:.1e}"


def dash(value: float | None, form: str) -> str:
    """Format a value, or a dash if it was not measured."""
    return "–" if value is None else format(value, form)
