"""What benchmarks share: a world, medians of repeated runs, a table on the terminal, JSON in a file."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from salmon.noise import TSTE
from salmon.simulate import ScaledNoiseModel, World, given_world


@dataclass
class Report:
    """Rows of one benchmark, printed as they come and written as JSON at the end."""

    name: str
    columns: Sequence[str]
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(f"\n{self.name}\n" + "  ".join(f"{column:>{self._width(column)}}" for column in self.columns))

    def add(self, **row: Any) -> None:
        """One line of the table."""
        self.rows.append(row)
        print("  ".join(f"{shown(row.get(column)):>{self._width(column)}}" for column in self.columns), flush=True)

    def note(self, sentence: str) -> None:
        """A sentence under the table."""
        self.notes.append(sentence)
        print(sentence, flush=True)

    def write(self, path: Path | None) -> None:
        """All rows as JSON; nothing without a path."""
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": self.name, "machine": machine(), "rows": self.rows, "notes": self.notes}
        path.write_text(json.dumps(document, indent=1, default=float) + "\n")

    @staticmethod
    def _width(column: str) -> int:
        return max(10, len(column))


def shown(value: Any) -> str:
    """Four significant digits of a number; nothing for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "load": os.getloadavg()[0],
    }


def seconds(*functions: Callable[[], Any], repeats: int = 7, at_most_s: float = 20.0, cpu: bool = False) -> list[float]:
    """The median time of each call after one to warm up, all taken in turn so that a busy machine slows all alike.

    Fewer repeats where they would take longer than `at_most_s` in all. `cpu` counts the processor time of this process
    instead of the time on the wall: on a machine shared with others, what the calls would take on one of their own.
    """
    clock = time.process_time if cpu else time.perf_counter
    times: list[list[float]] = [[] for _ in functions]
    started = time.perf_counter()
    for turn in range(repeats + 1):
        for function, taken in zip(functions, times, strict=True):
            before = clock()
            function()
            taken.append(clock() - before)
        spent = time.perf_counter() - started
        if spent * (turn + 2) / (turn + 1) > at_most_s:
            break
    # The first call warms up, unless there was time for that one only.
    return [statistics.median(taken[1:] or taken) for taken in times]


def tste_world(n: int, d: int, rng: np.random.Generator) -> World:
    """Targets at N(0, 2²) coordinates, and people who answer as t-STE has it."""
    return given_world(2 * rng.standard_normal((n, d)), ScaledNoiseModel(TSTE()))


def latencies(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99 % quantile in milliseconds."""
    return {f"{name}_ms_{q}": float(1000 * np.quantile(seconds, q / 100)) for q in (50, 99)}


def arguments(description: str, *, clocks: bool = True, **options: dict[str, Any]) -> argparse.Namespace:
    """The command line of a benchmark: `--json PATH`, with a choice of clocks `--cpu`, and its own options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if clocks:
        parser.add_argument("--cpu", action="store_true", help="count processor time, not time on the wall")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    for name, option in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    return parser.parse_args()
