"""What carrying out a step changes of a participant, as values, and the fields of the store that it sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontend.store.statuses import Status
from salmon.wire import encode_json


@dataclass(frozen=True)
class ConsentGiven:
    """The version of the text that was agreed to, when, and in which language."""

    version: str
    agreed_ms: int
    language: str


@dataclass(frozen=True)
class ComprehensionAttempt:
    """One attempt at the comprehension questions; its number is its identity, so that one sent again counts once."""

    number: int
    options: tuple[str, ...]
    right: bool


@dataclass(frozen=True)
class StepChange:
    """What carrying out a step changes of a participant.

    `step` is done at `at_ms`; it is empty where the step is not done yet, or ended the participant's part. `practice`
    is the list of its trials; `replies` are those to the questions after the trials.
    """

    status: Status
    step: str = ""
    at_ms: int = 0
    declined_ms: int | None = None
    redirected_ms: int | None = None
    consent: ConsentGiven | None = None
    attempt: ComprehensionAttempt | None = None
    practice: Sequence[Mapping[str, Any]] | None = None
    replies: Mapping[str, str | float] = field(default_factory=dict[str, str | float])

    def encode(self) -> dict[str, str | int]:
        """Return the fields of the hash that the change sets."""
        values: dict[str, str | int] = {"status": self.status.value}
        if self.step:
            values[f"step:{self.step}"] = self.at_ms
        if self.declined_ms is not None:
            values["declined_ms"] = self.declined_ms
        if self.redirected_ms is not None:
            values["redirected_ms"] = self.redirected_ms
        if self.consent is not None:
            values[f"consent:{self.consent.version}"] = encode_json(vars(self.consent))
        if self.attempt is not None:
            values[f"comprehension:{self.attempt.number}"] = encode_json(
                {"options": self.attempt.options, "right": self.attempt.right}
            )
        if self.practice is not None:
            values["practice"] = encode_json(self.practice)
        return values | {f"question:{name}": encode_json(reply) for name, reply in self.replies.items()}
