"""Trying an experiment out: an experimenter walks through all of it as a participant would, and nothing is recorded.

Whoever tries is a participant of a kind of their own. What the steps need to know of them is forgotten after some
hours; their answers are confirmed and never reach the log, and no counter moves. Their queries are random ones: the
published ones belong to participants.
"""

from __future__ import annotations

import secrets
import string

#: The ids of those who try begin like this; those of participants are drawn, and one in 10^10 would.
_PREFIX = "tryout"
_LETTERS = string.ascii_lowercase + string.digits
#: The parameter of the page's address that holds the key.
PARAMETER = "tryout"
#: What is known of somebody who tries is forgotten after this time.
KEPT_SECONDS = 6 * 3600


def is_tryout(participant: str) -> bool:
    """Whether this is somebody who only tries."""
    return participant.startswith(_PREFIX)


def new_tryout() -> str:
    """An id for somebody who tries."""
    return _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(12 - len(_PREFIX)))
