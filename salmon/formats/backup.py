"""A backup of the first Salmon (`exp-…-salmon-….rdb`): its description and its answers, and no more of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from salmon.errors import Problem
from salmon.formats.rdb import DumpError
from salmon.formats.rdb_json import json_values
from salmon.formats.tables import ContainerError

_CONFIG, _ANSWERS, _START = "exp_config", "all-responses", "start_time"


@dataclass(frozen=True)
class Backup:
    """What a backup holds: the description as the old program stored it, when it began, and how many answers there are."""

    config: Mapping[str, Any]
    started_ms: int
    answers: int


def is_backup(path: Path) -> bool:
    """Whether a file begins as a Redis dump does."""
    with path.open("rb") as file:
        return file.read(5) == b"REDIS"


def read_backup(path: Path, answers: TextIO) -> Backup:
    """The description; the answers are written to `answers` as JSON, one a line. ContainerError says what is wrong."""
    count = 0

    def keep(answer: Any) -> None:
        nonlocal count
        count += 1
        answers.write(json.dumps(answer) + "\n")

    found: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            found.update(json_values(file, {_CONFIG: None, _START: None, _ANSWERS: keep}))
    except DumpError as error:
        raise ContainerError(
            Problem(f"The backup cannot be read. {error}", hint="Download it again; nothing was imported.")
        ) from error
    config = found.get(_CONFIG)
    if not isinstance(config, dict) or not config:
        raise ContainerError(
            Problem(
                "The backup holds no experiment.",
                hint="It was made after a reset, or by another program than Salmon.",
            )
        )
    started = found.get(_START)
    seconds = started if isinstance(started, int | float) and 0 < started < 1e11 else 0
    return Backup(cast("dict[str, Any]", config), round(1000 * seconds), count)
