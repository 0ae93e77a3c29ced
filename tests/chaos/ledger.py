"""The ledger of the people: which answers they sent, which were acknowledged, and what the store says at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from frontend.security import Signer
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.records import Answer, Served
from tests.bundles import rows_of
from tests.oracles import recount


@dataclass
class Ledger:
    """What people sent and what they were told, by token; and when, so that a recovery can be timed.

    `codes` holds how many answers each page had given when it was shown the completion code.
    """

    sent: dict[str, int] = field(default_factory=dict[str, int])
    acknowledged: set[str] = field(default_factory=set[str])
    repeats: int = 0
    cut_replies: int = 0
    codes: dict[str, int] = field(default_factory=dict[str, int])
    surprises: list[str] = field(default_factory=list[str])
    _waiting: list[tuple[float, asyncio.Future[float]]] = field(
        default_factory=list[tuple[float, "asyncio.Future[float]"]]
    )

    def note_sent(self, token: str, winner: int) -> None:
        """Note an answer before it is sent for the first time."""
        self.sent[token] = winner

    def note_acknowledged(self, token: str, *, began: float) -> None:
        """Note that the server says of an answer that it is stored, in reply to a request that began at this moment."""
        self.acknowledged.add(token)
        now = time.monotonic()
        for since, future in self._waiting:
            if began >= since and not future.done():
                future.set_result(now)
        self._waiting = [item for item in self._waiting if not item[1].done()]

    async def next_acknowledged(self, since: float) -> float:
        """Return the moment of the first acknowledgement of an answer that was sent after `since`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((since, future))
        return await future


@dataclass(frozen=True)
class Comparison:
    """What the people were told, beside what is stored. All of `lost` to `codes_too_early` must be 0."""

    sent: int
    acknowledged: int
    stored: int
    exported: int
    participants: int
    lost: int
    doubled: int
    phantom: int
    counters_off: tuple[str, ...]
    export_differs: int
    codes: int
    codes_too_early: int

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, doubled, made up or miscounted."""
        wrong = (self.lost, self.doubled, self.phantom, self.export_differs, self.codes_too_early)
        return not any(wrong) and not self.counters_off

    def encode(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {**asdict(self), "holds": self.holds}


async def compare(ledger: Ledger, data: Path, slug: str, exported: bytes, secrets: Sequence[str]) -> Comparison:
    """Compare the ledger with the stream, the counters and an exported `responses.csv`.

    `secrets` are those that signed the tokens: more than one where the file of credentials was lost meanwhile.
    """
    directory = DataDirectory(data)
    store = Store.open(directory.redis_url("frontend", directory.credentials().frontend))
    try:
        experiment = str(await store.experiments.find(slug))
        pages = [page async for page in store.export_reader.read_answers(experiment, until="+")]
        answers = [answer for page in pages for _, answer in page]
        state = await store.experiments.read(experiment)
        counts = await store.experiments.read_counts(experiment)
        arrivals = await store.participants.count(experiment)
    finally:
        await store.close()
    signers = [Signer(secret) for secret in secrets]
    sent = {served.nonce: (served, ledger.sent[token]) for token in ledger.sent for served in [_read(signers, token)]}
    told = {_read(signers, token).nonce for token in ledger.acknowledged}
    stored = Counter(answer.served.nonce for answer in answers)
    rows = rows_of(exported)
    given = Counter(row["puid"] for row in rows)
    return Comparison(
        sent=len(ledger.sent),
        acknowledged=len(ledger.acknowledged),
        stored=len(answers),
        exported=len(rows),
        participants=arrivals,
        lost=len(told - set(stored)),
        doubled=sum(count - 1 for count in stored.values()),
        phantom=sum(not _was_sent(answer, sent) for answer in answers),
        counters_off=tuple(_counters_off(answers, counts, state.counters)),
        export_differs=_differences(rows, answers),
        codes=len(ledger.codes),
        codes_too_early=sum(given[puid] < wanted for puid, wanted in ledger.codes.items()),
    )


def _read(signers: Sequence[Signer], token: str) -> Served:
    for signer in signers[:-1]:
        try:
            return signer.read_served(token)
        except Exception:  # noqa: BLE001 - signed with another secret
            continue
    return signers[-1].read_served(token)


def _was_sent(answer: Answer, sent: dict[str, tuple[Served, int]]) -> bool:
    """Return whether somebody gave this answer to this query."""
    known = sent.get(answer.served.nonce)
    if known is None:
        return False
    served, winner = known
    same = (answer.served.head, answer.served.left, answer.served.right) == (served.head, served.left, served.right)
    return same and answer.winner == winner


def _counters_off(answers: Sequence[Answer], counts: dict[str, str], counters: Any) -> list[str]:
    """Return the counters that are not what counting the answers again finds."""
    wanted = recount(answers)
    found = {name: int(value) for name, value in counts.items() if not name.startswith("completed:")}
    off = [name for name in {**wanted, **found} if wanted.get(name, 0) != found.get(name, 0)]
    by_sampler = Counter(answer.served.sampler for answer in answers)
    totals = {"answers": len(answers), **{f"answers:{name}": count for name, count in by_sampler.items()}}
    return off + [name for name, count in totals.items() if counters.get(name, 0) != count]


def _differences(rows: Sequence[dict[str, str]], answers: Sequence[Answer]) -> int:
    """Return how many rows of responses.csv differ from the entries of the stream, in its order."""
    fields = [(row["head"], row["left"], row["right"], row["winner"], row["trial_index"]) for row in rows]
    entries = [
        tuple(map(str, (a.served.head, a.served.left, a.served.right, a.winner, a.served.trial))) for a in answers
    ]
    return abs(len(fields) - len(entries)) + sum(a != b for a, b in zip(fields, entries, strict=False))
