"""Who arrives: the parameters of a link become one identity, or a sentence why they cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from frontend.errors import BadRequestError

Source = Literal["link", "prolific", "connect", "sona", "mturk"]

#: Parameter -> the platform that sends it, in the order in which they are believed.
_IDENTIFIERS: dict[str, Source] = {
    "PROLIFIC_PID": "prolific",
    "participantId": "connect",
    "survey_code": "sona",
    "workerId": "mturk",
    "puid": "link",
}
_LONGEST = 255
_ALLOWED = re.compile(r"[A-Za-z0-9._:@+-]+")
_PLACEHOLDER = re.compile(r"[{}%$]")


@dataclass(frozen=True)
class Arrival:
    """Who says they are here: `identity` is the same for the same person on the same platform."""

    source: Source
    puid: str

    @property
    def identity(self) -> str:
        """The field of the hash of arrivals."""
        return f"{self.source}:{self.puid}"


def arrival_of(parameters: Mapping[str, str], *, fresh: str) -> Arrival:
    """The arrival that a link's parameters describe; a link without any makes a new participant called `fresh`.

    A platform that forgot to fill in its placeholder would make one participant of everybody: such a link is refused.
    """
    for name, source in _IDENTIFIERS.items():
        value = parameters.get(name, "").strip()
        if not value:
            continue
        if _PLACEHOLDER.search(value) or value == name:
            raise BadRequestError(
                f"The link says {name}={value}: the platform has not filled in who you are.",
                hint="Please tell the people who run this study; they can see how to set the link on its recruitment page.",
                where=name,
            )
        if len(value) > _LONGEST or not _ALLOWED.fullmatch(value):
            raise BadRequestError(
                f"The {name} in this link is not an id: it has characters or a length that ids do not have.",
                hint="Open the link from the platform again, without changing it.",
                where=name,
            )
        return Arrival(source, value)
    return Arrival("link", fresh)
