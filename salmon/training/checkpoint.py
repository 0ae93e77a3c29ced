"""A run on disk: arrays as .npz and the rest as JSON, so that nothing but numbers and words is ever loaded.

A checkpoint is there when its JSON is: that file names its arrays and is put in place last, in one move. Whoever is killed
while writing leaves the checkpoint before.
"""

import json
import os
import zipfile
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from salmon.distributed.averaging import AveragingState
from salmon.distributed.batch_size import Memory
from salmon.distributed.state import Progress, Row, TrainingState
from salmon.errors import SalmonError

_FORMAT = 1
_NAME = "training.json"


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the last state of one run. `job` is what the run was, in words; another one is refused."""

    folder: Path

    def save(self, state: TrainingState, rows: tuple[Row, ...], job: str) -> None:
        """Replace the checkpoint by this one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = self.folder / f"step-{state.progress.step}.npz"
        table = {f"rows/{name}": np.array([row.get(name, np.nan) for row in rows]) for name in _columns(rows)}
        stored = BytesIO()
        np.savez(stored, allow_pickle=False, **state.arrays, **table)
        _replace(arrays, stored.getvalue())
        document = {
            "format": _FORMAT,
            "job": job,
            "arrays": arrays.name,
            "progress": asdict(state.progress),
            "memory": asdict(state.memory),
            "averaging": asdict(state.averaging),
            "monitors": [dict(each) for each in state.monitors],
            "figures": dict(state.figures),
        }
        _replace(self.folder / _NAME, (json.dumps(document, indent=1) + "\n").encode())
        for old in self.folder.glob("step-*.npz"):
            if old != arrays:
                old.unlink()

    def load(self, job: str) -> tuple[TrainingState, tuple[Row, ...]] | None:
        """The state and the rows before it; None where there is no checkpoint yet."""
        path = self.folder / _NAME
        if not path.exists():
            return None
        try:
            document: dict[str, Any] = json.loads(path.read_text())
            _check_format(document)
            with (self.folder / document["arrays"]).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            state = TrainingState(
                {name: array for name, array in arrays.items() if not name.startswith("rows/")},
                Progress(**document["progress"]),
                Memory(**document["memory"]),
                AveragingState(**document["averaging"]),
                tuple(document["monitors"]),
                document["figures"],
            )
        except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
            raise SalmonError(
                f"The checkpoint in {self.folder} cannot be read: {error}.",
                hint="Move the folder away to start anew.",
                where=str(path),
            ) from error
        if document["job"] != job:
            raise SalmonError(
                f"The checkpoint in {self.folder} belongs to another run.",
                hint=f"It was {document['job']}; this is {job}. Give another folder, or the same settings.",
                where=str(path),
            )
        return state, _rows(arrays)


def _check_format(document: dict[str, Any]) -> None:
    if document.get("format") != _FORMAT:
        raise ValueError(f"its format is {document.get('format')!r} and not {_FORMAT}")


def _columns(rows: tuple[Row, ...]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _rows(arrays: dict[str, Any]) -> tuple[Row, ...]:
    columns = {name.removeprefix("rows/"): array for name, array in arrays.items() if name.startswith("rows/")}
    length = len(next(iter(columns.values()), ()))
    # What was not measured in a step was no key of its row.
    return tuple(
        {name: float(array[step]) for name, array in columns.items() if not np.isnan(array[step])}
        for step in range(length)
    )


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside this one and move it into place when all of it is on the disk."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
