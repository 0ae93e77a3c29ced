"""The statuses of a participant: ours with their transitions, and those that platforms give to a submission.

A participant holds a place of the experiment from arriving until the end, unless they leave it first: then somebody
else may come in their stead. Whoever has begun may still finish, with a place or without.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """How far a participant is."""

    ARRIVED = "arrived"
    CONSENTED = "consented"
    TRAINING = "training"
    ACTIVE = "active"
    COMPLETED = "completed"
    REDIRECTED = "redirected"
    DECLINED = "declined"
    SCREENED_OUT = "screened_out"
    FAILED_CHECKS = "failed_checks"
    RETURNED = "returned"
    TIMED_OUT = "timed_out"
    ABANDONED = "abandoned"
    WITHDRAWN = "withdrawn"
    REPLACED = "replaced"

    def becomes(self, wanted: Status) -> Status:
        """Return the status after a step that leads to `wanted`: the same as before where no way leads there."""
        return wanted if wanted in TRANSITIONS[self] else self


class PlatformStatus(StrEnum):
    """What a recruitment platform says about a participant's submission."""

    RESERVED = "reserved"
    ACTIVE = "active"
    TIMED_OUT = "timed_out"
    AWAITING_REVIEW = "awaiting_review"
    APPROVED = "approved"
    RETURNED = "returned"
    REJECTED = "rejected"
    SCREENED_OUT = "screened_out"


_REFUSED = frozenset({Status.DECLINED, Status.SCREENED_OUT})
_LEAVING = frozenset({Status.RETURNED, Status.TIMED_OUT, Status.ABANDONED, Status.WITHDRAWN})
_BEFORE_TRIALS = frozenset({Status.ARRIVED, Status.CONSENTED, Status.TRAINING, Status.ACTIVE}) | _REFUSED | _LEAVING
_FROM_TRIALS = frozenset({Status.COMPLETED, Status.REPLACED, Status.FAILED_CHECKS}) | _REFUSED | _LEAVING
#: The statuses that may follow each. Whoever agrees to a new text in the middle of the trials stays active, but may
#: still decline it. Whoever was timed out by the platform, or was away for too long, may still finish.
TRANSITIONS: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.ARRIVED: _BEFORE_TRIALS | {Status.REPLACED},
        Status.CONSENTED: _BEFORE_TRIALS | {Status.REPLACED},
        Status.TRAINING: _BEFORE_TRIALS | {Status.REPLACED},
        Status.ACTIVE: frozenset({Status.ACTIVE}) | _FROM_TRIALS,
        Status.COMPLETED: frozenset({Status.COMPLETED, Status.REDIRECTED, Status.RETURNED, Status.WITHDRAWN})
        | _REFUSED,
        Status.REDIRECTED: frozenset({Status.REDIRECTED, Status.RETURNED, Status.WITHDRAWN}) | _REFUSED,
        Status.TIMED_OUT: _FROM_TRIALS,
        Status.ABANDONED: _BEFORE_TRIALS | _FROM_TRIALS,
        Status.DECLINED: frozenset(),
        Status.SCREENED_OUT: frozenset(),
        Status.FAILED_CHECKS: frozenset(),
        Status.RETURNED: frozenset(),
        Status.WITHDRAWN: frozenset(),
        Status.REPLACED: frozenset(),
    }
)
#: Statuses from which there is no way on.
OUT = frozenset(status for status, following in TRANSITIONS.items() if not following)
#: Statuses of participants whose answers are all stored and who have been shown the way out.
FINISHED = frozenset({Status.COMPLETED, Status.REDIRECTED})
#: Statuses in which the experiment's queries are served and answers count towards the end.
UNDER_WAY = FINISHED | {Status.ACTIVE}
#: Statuses of participants who hold no place: somebody else may come in their stead.
AWAY = OUT | {Status.TIMED_OUT, Status.ABANDONED}
#: What a platform says about a submission -> the status that follows from it here.
FROM_PLATFORM: Mapping[PlatformStatus, Status] = MappingProxyType(
    {PlatformStatus.RETURNED: Status.RETURNED, PlatformStatus.TIMED_OUT: Status.TIMED_OUT}
)


def leading_to(wanted: Status) -> frozenset[Status]:
    """Return the statuses that `wanted` may follow."""
    return frozenset(status for status, following in TRANSITIONS.items() if wanted in following)
