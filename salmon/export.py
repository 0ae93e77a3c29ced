"""Rows of the files that leave the system.

The first 26 columns of the responses are those of the first Salmon, in its order and with its units (seconds); what we
know beyond them follows. Translation from our vocabulary to the columns' happens here and nowhere else.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from salmon.records import Answer

_PLACES = ("left", "right", "head", "winner", "loser")

#: The columns that scripts written for the first Salmon read.
FIRST_COLUMNS = (
    "head",
    "left",
    "right",
    "winner",
    "sampler",
    "score",
    "puid",
    "response_time",
    "network_latency",
    "time_received",
    "loser",
    *(f"{place}_html" for place in _PLACES),
    *(f"{place}_filename" for place in _PLACES),
    "time_received_since_start",
    "datetime_received",
    "start_time",
    "puid_num_responses",
    "num_responses",
)

#: What we add; the data dictionary of a bundle explains each.
FURTHER_COLUMNS = (
    "response_id",
    "query_id",
    "participant",
    "participant_session",
    "trial_index",
    "trial_type",
    "winner_side",
    "input",
    "rt_ms",
    "query_wait_ms",
    "onset_client_ms",
    "sent_attempts",
    "received_late",
    "generation",
    "query_age_s",
    "prob_sampler",
    "prob_query",
    "blur_during_trial",
    "viewport_w",
    "viewport_h",
    "signed",
    "revision",
)

RESPONSE_COLUMNS = FIRST_COLUMNS + FURTHER_COLUMNS

#: An answer that comes later than this after its query was served is marked.
LATE_MS = 10 * 60 * 1000


@dataclass(frozen=True)
class TargetNames:
    """How one target appears in a file: the HTML that was shown, and its file name (its text where it has no file)."""

    html: str
    filename: str


@dataclass
class Responses:
    """Turns answers, in the order of the stream, into rows; it counts as it goes, so each is used for one pass."""

    targets: Sequence[TargetNames]
    started_ms: int
    puids: Mapping[str, str]
    _given: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    _total: int = 0

    def row(self, stream_id: str, answer: Answer) -> dict[str, str | int | float]:
        """One row of `responses.csv`, by column."""
        served, timing = answer.served, answer.timing
        self._given[served.participant] += 1
        self._total += 1
        shown = {
            "left": served.left,
            "right": served.right,
            "head": served.head,
            "winner": answer.winner,
            "loser": answer.loser,
        }
        received = datetime.fromtimestamp(answer.received_ms / 1000, UTC).replace(tzinfo=None)
        return {
            **shown,
            "sampler": served.sampler,
            "score": served.score,
            "puid": self.puids.get(served.participant, served.participant),
            "response_time": _seconds(timing.rt_ms),
            "network_latency": _seconds(timing.network_latency_ms),
            "time_received": round(answer.received_ms / 1000, 3),
            **{f"{place}_html": self.targets[shown[place]].html for place in _PLACES},
            **{f"{place}_filename": self.targets[shown[place]].filename for place in _PLACES},
            "time_received_since_start": round((answer.received_ms - self.started_ms) / 1000, 3),
            "datetime_received": received.isoformat(timespec="milliseconds"),
            "start_time": round(self.started_ms / 1000, 3),
            "puid_num_responses": self._given[served.participant],
            "num_responses": self._total,
            "response_id": stream_id,
            "query_id": served.nonce,
            "participant": served.participant,
            "participant_session": served.session,
            "trial_index": served.trial,
            "trial_type": served.trial_type,
            "winner_side": answer.winner_side,
            "input": timing.input,
            "rt_ms": _known(timing.rt_ms),
            "query_wait_ms": _known(timing.query_wait_ms),
            "onset_client_ms": _known(timing.onset_client_ms),
            "sent_attempts": timing.sent_attempts,
            "received_late": _truth(answer.received_ms - served.served_ms > LATE_MS),
            "generation": served.generation,
            "query_age_s": round((served.served_ms - served.published_ms) / 1000, 3) if served.published_ms else "",
            "prob_sampler": served.sampler_probability,
            "prob_query": served.probability or "",
            "blur_during_trial": _truth(timing.blur_during_trial),
            "viewport_w": timing.viewport_w or "",
            "viewport_h": timing.viewport_h or "",
            "signed": _truth(answer.signed),
            "revision": served.revision,
        }


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, header: bool) -> str:
    """Rows as RFC 4180 text (CRLF, quotes where needed), with the header line where it is the first piece of a file."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\r\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _seconds(milliseconds: float) -> float:
    return round(milliseconds / 1000, 6) if milliseconds >= 0 else -1


def _known(milliseconds: float) -> float | str:
    return milliseconds if milliseconds >= 0 else ""


def _truth(value: bool) -> str:
    return "true" if value else "false"
