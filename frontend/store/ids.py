"""Ids of experiments, participants and requests: short names of small letters and digits, as keys of the store hold them.

Most ids are drawn. What an import brings gets ids that follow from its content, so that an import that was killed finds
what it has written already. Two kinds of participant have ids that can be told from all others: those who try an
experiment out, and the one that stands for scripts that ask without saying who will answer.
"""

from __future__ import annotations

import hashlib
import secrets
import string

_LETTERS = string.ascii_lowercase + string.digits
_PARTICIPANT_LENGTH = 12
_EXPERIMENT_LENGTH = 10
#: How the ids of those who try begin; of drawn ids, one in 10^9 would.
_TRYOUT = "tryout"

#: The participant of scripts that ask for nobody in particular: without answers, so that every query is new.
NOBODY = "nobodynobody"


def draw_participant_id() -> str:
    """Return a new id of a participant, or of a request to the learning process."""
    return _draw(_PARTICIPANT_LENGTH)


def draw_experiment_id() -> str:
    """Return a new id of an experiment."""
    return _draw(_EXPERIMENT_LENGTH)


def draw_tryout_id() -> str:
    """Return a new id of somebody who tries an experiment out."""
    return _TRYOUT + _draw(_PARTICIPANT_LENGTH - len(_TRYOUT))


def is_tryout(participant: str) -> bool:
    """Return whether this is the id of somebody who only tries an experiment out."""
    return participant.startswith(_TRYOUT)


def derive_participant_id(text: str) -> str:
    """Return the id of a participant that follows from a text: the same each time."""
    return _derive(text, _PARTICIPANT_LENGTH)


def derive_experiment_id(text: str) -> str:
    """Return the id of an experiment that follows from a text: the same each time."""
    return _derive(text, _EXPERIMENT_LENGTH)


def _draw(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def _derive(text: str, length: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:length])
