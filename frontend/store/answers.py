"""Answers in the store, appended once each and never changed, and the counters behind the console's figures.

Counters move in the call that records the answer, so they are right after every crash, and a figure about a million
answers is read from a few thousand numbers. What an answer adds to them is a pure function, so that counting an
experiment's answers again finds the same numbers. Each counter is a field of one hash; its name says what is counted:

    minute:M    answers received in minute M since 1970          began:M     participants whose first answer came then
    completed:M participants who finished then
    rt:B, wait:B, net:B   response times, waiting times and network latencies in bin B
    head:T, foot:T, won:T how often target T was the head, a foot, and the winner
    type:K      answers to queries of trial type K               late        answers long after their query

`frontend.store.export_reader` reads the answers in order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, log2

from frontend.store.connection import Verbs, gone
from frontend.store.lua import RECORD_ANSWER
from salmon.export import LATE_MS
from salmon.records import Answer
from salmon.wire import Keys, encode_answer
from salmon.wire.answer_pages import AnswerColumns

#: Bins of times are an eighth of an octave wide (9 %), the first begins here, and the last is open (a day).
FIRST_MS = 1.0
BINS_AN_OCTAVE = 8
LAST_BIN = 8 * 26

MINUTE_MS = 60_000


@dataclass(frozen=True)
class AnswerReceipt:
    """Result of recording an answer: its place in the stream, how many this participant
    has given, and how many all have.
    """

    stream_id: str
    duplicate: bool
    count: int
    total: int


class Answers(Verbs):
    """Verbs about answers."""

    async def record(self, answer: Answer) -> AnswerReceipt:
        """Append an answer and move the counters, unless its token was answered (atomic).

        For a token that was answered, return what was recorded the first time.
        """
        served = answer.served
        keys = Keys(served.experiment)
        moved = counters_of(answer)
        fields = [part for pair in encode_answer(answer).items() for part in pair]
        receipt = await self._connection.run(
            RECORD_ANSWER,
            (
                keys.answers,
                keys.answered(served.participant),
                keys.pending(served.sampler),
                keys.participant(served.participant),
                keys.state,
                keys.counts,
                keys.given(served.participant),
                keys.erased,
            ),
            (
                served.nonce,
                answer.received_ms,
                served.sampler,
                f"began:{answer.received_ms // MINUTE_MS}",
                served.trial,
                len(moved),
                served.participant,
                *moved,
                *fields,
            ),
            copied=True,
        )
        if receipt is None:
            raise gone()
        stream_id, fresh, count, total = receipt
        return AnswerReceipt(stream_id, duplicate=not fresh, count=int(count), total=int(total))

    async def last_ms(self, experiment: str) -> int:
        """Return when the last answer came; 0 before the first."""
        last = await self._connection.do(lambda client: client.xrevrange(Keys(experiment).answers, count=1))
        return int(last[0][0].partition("-")[0]) if last else 0

    async def count(self, experiment: str) -> int:
        """Return how many answers there are."""
        return int(await self._connection.do(lambda client: client.xlen(Keys(experiment).answers)))


def bin_of(milliseconds: float) -> int:
    """Return the bin of a time; what is below the first bin is counted in it."""
    if milliseconds <= FIRST_MS:
        return 0
    return min(LAST_BIN, floor(BINS_AN_OCTAVE * log2(milliseconds / FIRST_MS)))


def bin_start_ms(place: int) -> float:
    """Return where a bin begins, in milliseconds."""
    return FIRST_MS * 2 ** (place / BINS_AN_OCTAVE)


def counters_of(answer: Answer) -> tuple[str, ...]:
    """Return the counters that one answer moves by one."""
    served, timing = answer.served, answer.timing
    moved = [
        f"minute:{answer.received_ms // MINUTE_MS}",
        f"head:{served.head}",
        f"foot:{served.left}",
        f"foot:{served.right}",
        f"won:{answer.winner}",
        f"type:{served.trial_type}",
    ]
    times = (("rt", timing.rt_ms), ("wait", timing.query_wait_ms), ("net", timing.network_latency_ms))
    moved += [f"{name}:{bin_of(value)}" for name, value in times if value >= 0]
    if answer.received_ms - served.served_ms > LATE_MS:
        moved.append("late")
    return tuple(moved)


def recount(pages: Iterable[AnswerColumns]) -> dict[str, int]:
    """Return all counters of answers in the order of the stream, except `completed`,
    which does not follow from answers.
    """
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for page in pages:
        received_ms = page.column("received_ms")
        _count(counts, "minute", [received // MINUTE_MS for received in received_ms])
        for kind, name in (
            ("head", "head"),
            ("foot", "left"),
            ("foot", "right"),
            ("won", "winner"),
            ("type", "trial_type"),
        ):
            _count(counts, kind, page.column(name))
        for kind, name in (("rt", "rt_ms"), ("wait", "query_wait_ms"), ("net", "network_latency_ms")):
            _count(counts, kind, [bin_of(value) for value in page.column(name) if value >= 0])
        waits = zip(received_ms, page.column("served_ms"), strict=True)
        if late := sum(received - served > LATE_MS for received, served in waits):
            counts["late"] += late
        for participant, received in zip(page.column("participant"), received_ms, strict=True):
            if participant not in seen:
                seen.add(participant)
                counts[f"began:{received // MINUTE_MS}"] += 1
    return dict(counts)


def _count(counts: Counter[str], kind: str, values: Iterable[object]) -> None:
    for value, count in Counter(values).items():
        counts[f"{kind}:{value}"] += count


@dataclass(frozen=True)
class Counts:
    """The counters of one experiment, by kind."""

    series: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, Mapping[int, int]])
    types: Mapping[str, int] = field(default_factory=dict[str, int])
    late: int = 0

    @staticmethod
    def of(fields: Mapping[str, str]) -> "Counts":
        """Return the counters of the stored hash; those of later versions are ignored."""
        series: dict[str, dict[int, int]] = {}
        types: dict[str, int] = {}
        for name, value in fields.items():
            kind, _, place = name.partition(":")
            if kind == "type":
                types[place] = int(value)
            elif place.isdigit():
                series.setdefault(kind, {})[int(place)] = int(value)
        return Counts(series, types, int(fields.get("late", 0)))

    def get(self, kind: str) -> Mapping[int, int]:
        """Return one kind of counter by its minute, bin or target."""
        return self.series.get(kind, {})

    def targets_without_answer(self, n: int) -> int:
        """Return how many of n targets are in no query that was answered."""
        heads, feet = self.get("head"), self.get("foot")
        return sum(not heads.get(target) and not feet.get(target) for target in range(n))

    def quantile_ms(self, kind: str, share: float) -> float | None:
        """Return a quantile of times, to the middle of its bin (± 4 %); None before the first."""
        counted = sorted(self.get(kind).items())
        total = sum(count for _, count in counted)
        passed = 0
        for place, count in counted:
            passed += count
            if passed >= share * total > 0:
                return (bin_start_ms(place) * bin_start_ms(place + 1)) ** 0.5
        return None
