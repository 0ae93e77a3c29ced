"""Finished runs, a JSON line each: a benchmark that was stopped goes on where it stopped."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.efficiency.levels import Curves

#: What makes two runs the same run.
KEY = ("version", "world", "n", "sampler", "seed", "queue", "step")


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    """The identity of a run."""
    return tuple(run[name] for name in KEY)


class Records:
    """The file of finished runs. A line that was cut off by a crash is left out, and its run is done again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    run = json.loads(line)
                except json.JSONDecodeError:
                    continue
                self._runs[key_of(run)] = run

    def has(self, task: dict[str, Any]) -> bool:
        """Whether this run is there with at least as many rounds."""
        run = self._runs.get(key_of(task))
        return run is not None and run["rounds"] >= task["rounds"]

    def add(self, run: dict[str, Any]) -> None:
        """Keep a finished run."""
        self._runs[key_of(run)] = run
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(run) + "\n")

    def measured(self, tasks: Sequence[dict[str, Any]]) -> dict[str, Curves]:
        """The curves of accuracy and rank error of one sampler, as far as there are any."""
        found = {measure: self.curves(measure, tasks) for measure in ("accuracy", "rank_error")}
        return {measure: curves for measure, curves in found.items() if curves is not None}

    def curves(self, measure: str, tasks: Iterable[dict[str, Any]]) -> Curves | None:
        """The curves of one sampler over its seeds, as far as all of them go; None if there are none."""
        runs = [self._runs[key_of(task)] for task in tasks if key_of(task) in self._runs]
        runs = [run for run in runs if measure in run["curve"]]
        if not runs:
            return None
        length = min(len(run["curve"]["answers"]) for run in runs)
        answers = np.array(runs[0]["curve"]["answers"][:length]) / runs[0]["n"]
        return Curves(
            answers, np.array([run["curve"][measure][:length] for run in runs]), tuple(run["seed"] for run in runs)
        )
