"""Write the rows of the responses.

The first 26 columns are those of the first Salmon, in its order and with its units (seconds); further columns follow.
Only this module translates from Salmon's vocabulary to these column names.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from salmon.export.table import Row, Table, columns
from salmon.records import Answer

_FIRST = (
    *columns(
        "integer",
        head="index of the target that the others were compared with",
        left="index of the target shown on the left",
        right="index of the target shown on the right",
        winner="index of the target judged nearer to the head",
    ),
    *columns("text", sampler="name of the sampler that chose the query"),
    *columns("number", score="the value by which the sampler ranked the query; -9999 if it was not ranked"),
    *columns("written", puid="the participant's id: the platform's, or the participant column where ids were left out"),
    *columns(
        "number",
        response_time="seconds from showing the query to the answer, by the clock of the page; -1 unknown",
        network_latency="seconds the page waited for the network; -1 unknown",
        time_received="Unix time in seconds at which the server received the answer; rows are in the order in which answers were stored, which"
        " after an outage can be another",
    ),
    *columns("integer", loser="index of the other target"),
    *columns(
        "text",
        left_html="what the page showed on the left",
        right_html="what the page showed on the right",
        head_html="what the page showed as the head",
        winner_html="what the page showed as the winner",
        loser_html="what the page showed as the loser",
        left_filename="file name of the left target; its text where it has no file",
        right_filename="file name of the right target",
        head_filename="file name of the head",
        winner_filename="file name of the winner",
        loser_filename="file name of the loser",
    ),
    *columns("number", time_received_since_start="seconds from the first opening of the experiment"),
    *columns("text", datetime_received="date and time of receipt in UTC, without a time zone, as Salmon 1 writes it"),
    *columns("number", start_time="Unix time in seconds at which the experiment was first opened"),
    *columns(
        "integer",
        puid_num_responses="number of this participant's answers in the file up to this row",
        num_responses="number of answers in the file up to this row",
    ),
)

_FURTHER = (
    *columns(
        "text",
        response_id="the answer's place in the log: milliseconds and a number; unique",
        query_id="unique id of the served query",
        participant="the participant's id inside this experiment; never a platform's",
        participant_session="which opening of the page",
    ),
    *columns("integer", trial_index="which query of this participant, from 1"),
    *columns(
        "text",
        trial_type="active, random, fallback (random because nothing was ready), validation, catch, repeat, shared, fixed or held_out (random, to compare samplers)",
        winner_side="left or right",
        input="mouse, touch, key or script; empty where the page did not say",
    ),
    *columns(
        "number",
        rt_ms="milliseconds from showing the query to the answer",
        query_wait_ms="milliseconds the participant waited for the query",
        onset_client_ms="when the query was shown, in milliseconds of the page's clock",
    ),
    *columns("integer", sent_attempts="how often the page sent the answer until it was confirmed"),
    *columns("truth", received_late="whether more than ten minutes lay between serving and receipt"),
    *columns("integer", generation="the refit whose model chose the query; 0 none"),
    *columns(
        "number",
        query_age_s="seconds between ranking the query and serving it",
        prob_sampler="probability with which this sampler was chosen for the trial (its inverse is the sampling weight); empty if unknown",
        prob_query="probability with which the sampler drew this query; empty where it took the best by score",
    ),
    *columns("truth", blur_during_trial="whether the participant looked away during the trial"),
    *columns("integer", viewport_w="width of the page in pixels", viewport_h="height of the page in pixels"),
    *columns("truth", signed="whether the query's signature was checked; false only for answers of old scripts"),
    *columns("integer", revision="which revision of the experiment was served"),
    *columns(
        "text",
        phase="practice or main",
        repeat_of="response_id of this participant's earlier answer to the same query, of trials asked again on purpose",
    ),
    *columns("integer", rng_seed="the seed of the experiment: the same one gives the same random queries"),
    *columns(
        "text",
        config_hash="beginning of the SHA-256 of the revision's description with all defaults",
        app_version="version of Salmon that stored this revision; empty where it was not noted",
    ),
    *columns("truth", excluded="whether the participant is left out of analyses, by hand or by the rules in quality"),
    *columns("text", exclusion_reason="the reasons for the exclusion"),
)

#: The columns that scripts written for the first Salmon read.
FIRST_COLUMNS = tuple(column.name for column in _FIRST)
#: What we add.
FURTHER_COLUMNS = tuple(column.name for column in _FURTHER)
RESPONSES = Table("responses", "an answer, in the order in which they were received", (*_FIRST, *_FURTHER))
RESPONSE_COLUMNS = RESPONSES.names
FIRST_RESPONSES = Table("salmon_responses", "an answer, with only the columns of Salmon 1", _FIRST)

#: An answer that comes later than this after its query was served is marked.
LATE_MS = 10 * 60 * 1000

#: Kinds of trials that ask a query again on purpose.
_AGAIN = frozenset({"repeat", "validation", "fixed"})
#: Answers of one participant among which a repeat finds what it repeats.
_MOST_REMEMBERED = 20_000


@dataclass(frozen=True)
class TargetNames:
    """How one target appears in a file: the HTML that was shown, and its file name (its text where it has no file)."""

    html: str
    filename: str


@dataclass(frozen=True)
class RevisionRecord:
    """How a revision appears in a file; `config_hash` is the beginning of the SHA-256 of its spec."""

    created_ms: int
    seed: int
    config_hash: str
    app_version: str = ""


@dataclass
class _Earlier:
    """The queries a participant has answered, and the places of the answers in the log, packed."""

    queries: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))


@dataclass
class Responses:
    """Turns answers, in the order of the stream, into rows. It counts answers on the way, so each is used for one pass.

    `puids` gives the id that is written for a participant; `excluded` why a participant is left out of analyses.
    """

    targets: Sequence[TargetNames]
    started_ms: int
    puids: Mapping[str, str]
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])
    revisions: Mapping[int, RevisionRecord] = field(default_factory=dict[int, RevisionRecord])
    _given: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    _total: int = 0
    _earlier: dict[str, _Earlier] = field(default_factory=lambda: defaultdict[str, _Earlier](_Earlier))

    def row(self, stream_id: str, answer: Answer) -> Row:
        """Return one row, in the order of the columns."""
        served, timing, targets = answer.served, answer.timing, self.targets
        participant, received_ms, winner = served.participant, answer.received_ms, answer.winner
        won_left = winner == served.left
        left, right, head = targets[served.left], targets[served.right], targets[served.head]
        won, lost = (left, right) if won_left else (right, left)
        self._given[participant] += 1
        self._total += 1
        revision = self.revisions.get(served.revision)
        reason = self.excluded.get(participant)
        return [
            served.head,
            served.left,
            served.right,
            winner,
            served.sampler,
            served.score,
            self.puids.get(participant, participant),
            _seconds(timing.rt_ms),
            _seconds(timing.network_latency_ms),
            received_ms / 1000,
            served.right if won_left else served.left,
            left.html,
            right.html,
            head.html,
            won.html,
            lost.html,
            left.filename,
            right.filename,
            head.filename,
            won.filename,
            lost.filename,
            (received_ms - self.started_ms) / 1000,
            moment(received_ms)[:-1],
            self.started_ms / 1000,
            self._given[participant],
            self._total,
            stream_id,
            served.nonce,
            participant,
            served.session,
            served.trial,
            served.trial_type,
            "left" if won_left else "right",
            timing.input,
            _known_or_none(timing.rt_ms),
            _known_or_none(timing.query_wait_ms),
            _known_or_none(timing.onset_client_ms),
            timing.sent_attempts,
            received_ms - served.served_ms > LATE_MS,
            served.generation,
            (served.served_ms - served.published_ms) / 1000 if served.published_ms else None,
            served.sampler_probability or None,
            served.probability or None,
            timing.blur_during_trial,
            timing.viewport_w or None,
            timing.viewport_h or None,
            answer.signed,
            served.revision,
            "practice" if served.trial_type == "practice" else "main",
            self._find_repeated(stream_id, answer),
            revision.seed if revision else None,
            revision.config_hash if revision else None,
            revision.app_version if revision else None,
            reason is not None,
            reason or "",
        ]

    def _find_repeated(self, stream_id: str, answer: Answer) -> str:
        """Return the earlier answer that this one repeats on purpose; every answer is remembered for later ones."""
        served, n = answer.served, len(self.targets)
        low, high = (served.left, served.right) if served.left < served.right else (served.right, served.left)
        query = (served.head * n + low) * n + high
        earlier = self._earlier[served.participant]
        found = ""
        if served.trial_type in _AGAIN and query in earlier.queries:
            milliseconds, number = divmod(earlier.places[earlier.queries.index(query)], 1 << 20)
            found = f"{milliseconds}-{number}"
        if len(earlier.queries) < _MOST_REMEMBERED:
            milliseconds, _, number = stream_id.partition("-")
            if len(number) < 7 and int(number) < 1 << 20:
                earlier.queries.append(query)
                earlier.places.append((int(milliseconds) << 20) + int(number))
        return found


def moment(milliseconds: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC."""
    second, rest = divmod(milliseconds, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    """Return Unix seconds as ISO 8601 in UTC, without a zone; answers of one second are written alike."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _seconds(milliseconds: float) -> float:
    return round(milliseconds / 1000, 6) if milliseconds >= 0 else -1.0


def _known_or_none(milliseconds: float) -> float | None:
    return milliseconds if milliseconds >= 0 else None
