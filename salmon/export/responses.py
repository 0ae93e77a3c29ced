"""Write the rows of the responses.

The first 26 columns are those of the first Salmon, in its order and with its units (seconds); further columns follow.
Only this module translates from Salmon's vocabulary to these column names.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from operator import eq

from salmon.export.table import Cell, Row, Table, columns
from salmon.wire.answer_pages import AnswerColumns

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

    def rows(self, page: AnswerColumns) -> list[Row]:
        """Return the rows of a page, each in the order of the columns."""
        heads, lefts, rights, winners = (page.column(name) for name in ("head", "left", "right", "winner"))
        participants, trial_types, served_ms = (
            page.column(name) for name in ("participant", "trial_type", "served_ms")
        )
        received_ms, published_ms, rt_ms = (page.column(name) for name in ("received_ms", "published_ms", "rt_ms"))
        won_left = list(map(eq, winners, lefts))
        losers = [right if won else left for won, left, right in zip(won_left, lefts, rights, strict=True)]
        htmls, filenames = [target.html for target in self.targets], [target.filename for target in self.targets]
        numbers = page.column("revision")
        revisions = {number: self.revisions.get(number) for number in set(numbers)}
        reasons = [self.excluded.get(participant) for participant in participants]
        first, size = self._total + 1, len(page)
        self._total += size
        columns: tuple[Iterable[Cell], ...] = (
            heads,
            lefts,
            rights,
            winners,
            page.column("sampler"),
            page.column("score"),
            [self.puids.get(participant, participant) for participant in participants],
            map(_seconds, rt_ms),
            map(_seconds, page.column("network_latency_ms")),
            [received / 1000 for received in received_ms],
            losers,
            *([htmls[target] for target in shown] for shown in (lefts, rights, heads, winners, losers)),
            *([filenames[target] for target in shown] for shown in (lefts, rights, heads, winners, losers)),
            [(received - self.started_ms) / 1000 for received in received_ms],
            [moment(received)[:-1] for received in received_ms],
            repeat(self.started_ms / 1000, size),
            [self._count(participant) for participant in participants],
            range(first, first + size),
            page.stream_ids,
            page.column("token"),
            participants,
            page.column("session"),
            page.column("trial"),
            trial_types,
            ["left" if won else "right" for won in won_left],
            page.column("input"),
            map(_known_or_none, rt_ms),
            map(_known_or_none, page.column("query_wait_ms")),
            map(_known_or_none, page.column("onset_client_ms")),
            page.column("sent_attempts"),
            [received - served > LATE_MS for received, served in zip(received_ms, served_ms, strict=True)],
            page.column("generation"),
            [
                (served - published) / 1000 if published else None
                for served, published in zip(served_ms, published_ms, strict=True)
            ],
            [probability or None for probability in page.column("sampler_probability")],
            [probability or None for probability in page.column("probability")],
            page.column("blur_during_trial"),
            [width or None for width in page.column("viewport_w")],
            [height or None for height in page.column("viewport_h")],
            page.column("signed"),
            numbers,
            ["practice" if trial_type == "practice" else "main" for trial_type in trial_types],
            self._find_repeated(page.stream_ids, participants, trial_types, self._pack(heads, lefts, rights)),
            [found.seed if (found := revisions[number]) else None for number in numbers],
            [found.config_hash if (found := revisions[number]) else None for number in numbers],
            [found.app_version if (found := revisions[number]) else None for number in numbers],
            [reason is not None for reason in reasons],
            [reason or "" for reason in reasons],
        )
        return [list(row) for row in zip(*columns, strict=True)]

    def _count(self, participant: str) -> int:
        """Return how many answers of a participant are in the file, with this one."""
        self._given[participant] += 1
        return self._given[participant]

    def _pack(self, heads: Sequence[int], lefts: Sequence[int], rights: Sequence[int]) -> list[int]:
        """Return a number for each query, which does not depend on the order of its feet."""
        n = len(self.targets)
        return [
            (head * n + left) * n + right if left < right else (head * n + right) * n + left
            for head, left, right in zip(heads, lefts, rights, strict=True)
        ]

    def _find_repeated(
        self,
        stream_ids: Sequence[str],
        participants: Sequence[str],
        trial_types: Sequence[str],
        queries: Sequence[int],
    ) -> list[str]:
        """Return the earlier answer that each one repeats on purpose; every answer is remembered for later ones."""
        repeated: list[str] = []
        for stream_id, participant, trial_type, query in zip(
            stream_ids, participants, trial_types, queries, strict=True
        ):
            earlier = self._earlier[participant]
            found = ""
            if trial_type in _AGAIN and query in earlier.queries:
                milliseconds, number = divmod(earlier.places[earlier.queries.index(query)], 1 << 20)
                found = f"{milliseconds}-{number}"
            repeated.append(found)
            if len(earlier.queries) < _MOST_REMEMBERED:
                place, _, order = stream_id.partition("-")
                if len(order) < 7 and int(order) < 1 << 20:
                    earlier.queries.append(query)
                    earlier.places.append((int(place) << 20) + int(order))
        return repeated


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
