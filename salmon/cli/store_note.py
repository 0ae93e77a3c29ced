"""Note which files the store has and how large they are, so that a later start notices if they were lost.

The note is a file of its own in the data directory. It is written while the store runs and when it has stopped, but not
over a note that says more than the files: a loss stays noted until the operator starts without what is missing.
"""

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from salmon.cli.append_only_file import files_in, find_loss
from salmon.cli.data_directory import DataDirectory, write_private
from salmon.logs import fields

log = logging.getLogger("salmon.store")

#: How often the note is written while the store runs.
NOTE_SECONDS = 60.0


def read_note(path: Path) -> dict[str, int]:
    """Return the noted files and their sizes; nothing if there is no note, as of a new store or an earlier version."""
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): int(size) for name, size in noted.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("note not read", extra=fields(file=str(path), error=str(error)))
        return {}


def write_note(directory: DataDirectory, noted: Mapping[str, int]) -> dict[str, int]:
    """Note what the store has now; return the note, which stays as it is if the store has less or it is not written."""
    try:
        now = files_in(directory.redis)
        if loss := find_loss(directory.redis, noted):
            log.error("store files lost", extra=fields(problem=loss.message))
            return dict(noted)
        write_private(directory.noted_files, json.dumps(now))
    except OSError as error:  # full, for example: the next note follows in a minute
        log.warning("note not written", extra=fields(file=str(directory.noted_files), error=str(error)))
        return dict(noted)
    return now


def keep_note(directory: DataDirectory, stopped: threading.Event) -> None:
    """Write the note again and again until the store has stopped, and then once more."""
    noted = write_note(directory, {})
    while not stopped.wait(NOTE_SECONDS):
        noted = write_note(directory, noted)
    write_note(directory, noted)
