"""Read pages of stored answers column by column: what exports of a million answers do.

A page is one text: an answer is its stream id and its fields, name and value by turns. Reading whole columns takes a
third of the time that an `Answer` for each entry would take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import compress, groupby
from typing import Any
from zlib import crc32

from salmon.records import Answer, Served, Timing
from salmon.wire.values import CHECKSUM, REST_FIELDS, SERVED_FIELDS, TIMING_FIELDS, build_record, reader_of

#: What stands between the answers of a page, and between the parts of an answer: recording and importing refuse both.
BETWEEN_ANSWERS, BETWEEN_PARTS = "\x1e", "\x1f"
#: Returns a page of answers as one text. Parsing every field of every answer as a reply of its own is what takes the
#: client longest.
#: KEYS answers · ARGV first id, last id, how many
READ_ANSWERS = """
local page = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #page do page[i] = page[i][1] .. '\\31' .. table.concat(page[i][2], '\\31') end
return table.concat(page, '\\30')
"""

_CHECKSUM = f"{BETWEEN_PARTS}{CHECKSUM}{BETWEEN_PARTS}"


def split_page(text: str) -> Iterator[list[str]]:
    """Yield each answer of a page as [stream id, name, value, name, value, …]."""
    return (line.split(BETWEEN_PARTS) for line in text.split(BETWEEN_ANSWERS))


def end_of(text: str) -> tuple[int, str]:
    """Return how many answers a page holds, and the stream id of the last; the page is not empty."""
    return text.count(BETWEEN_ANSWERS) + 1, text[text.rfind(BETWEEN_ANSWERS) + 1 :].partition(BETWEEN_PARTS)[0]


def damaged_in(text: str) -> list[str]:
    """Return the stream ids of a page's answers that are not as they were recorded.

    Entries of versions that wrote no checksum are taken as intact.
    """
    return [line.partition(BETWEEN_PARTS)[0] for line in text.split(BETWEEN_ANSWERS) if not _is_intact(line)]


def without(text: str, stream_ids: Sequence[str]) -> str:
    """Return a page without some of its answers."""
    left_out = set(stream_ids)
    lines = text.split(BETWEEN_ANSWERS)
    return BETWEEN_ANSWERS.join(line for line in lines if line.partition(BETWEEN_PARTS)[0] not in left_out)


def _is_intact(line: str) -> bool:
    body, _, digest = line.rpartition(_CHECKSUM)
    if not body or BETWEEN_PARTS in digest:
        return line.count(BETWEEN_PARTS) % 2 == 0
    return f"{crc32(body.partition(BETWEEN_PARTS)[2].encode(errors='replace')):08x}" == digest


class AnswerColumns:
    """Answers that one version wrote, one after the other: their fields as columns.

    Columns are named as in the stream. One that an older version did not write holds its default. `texts` are the
    columns as they are stored.
    """

    def __init__(self, experiment: str, stream_ids: list[str], texts: dict[str, list[str]]) -> None:
        self.experiment = experiment
        self.stream_ids = stream_ids
        self.texts = texts

    def __len__(self) -> int:
        return len(self.stream_ids)

    def column(self, name: str) -> list[Any]:
        """Return the values of a field, one for each answer."""
        read = reader_of(name)
        if name not in self.texts:
            return [_DEFAULTS[name]] * len(self)
        return self.texts[name] if read is str else list(map(read, self.texts[name]))

    def keep(self, wanted: Sequence[bool]) -> AnswerColumns:
        """Return the answers that are wanted."""
        if all(wanted):
            return self
        texts = {name: list(compress(column, wanted)) for name, column in self.texts.items()}
        return AnswerColumns(self.experiment, list(compress(self.stream_ids, wanted)), texts)

    def split(self) -> Iterator[AnswerColumns]:
        """Yield the answers one by one."""
        for place, stream_id in enumerate(self.stream_ids):
            texts = {name: [column[place]] for name, column in self.texts.items()}
            yield AnswerColumns(self.experiment, [stream_id], texts)

    def answers(self) -> Iterator[Answer]:
        """Yield the answers as records."""
        served = [(attribute, self.column(name)) for name, attribute, _ in SERVED_FIELDS]
        timing = [(name, self.column(name)) for name, _ in TIMING_FIELDS]
        served_names, timing_names = [name for name, _ in served], [name for name, _ in timing]
        rest = (self.column(name) for name in REST_FIELDS)
        of_served, of_timing = (zip(*(values for _, values in part), strict=True) for part in (served, timing))
        for given, measured, winner, received_ms, signed in zip(of_served, of_timing, *rest, strict=True):
            yield build_record(
                Answer,
                {
                    "served": build_record(
                        Served, {"experiment": self.experiment, **dict(zip(served_names, given, strict=True))}
                    ),
                    "winner": winner,
                    "timing": build_record(Timing, dict(zip(timing_names, measured, strict=True))),
                    "received_ms": received_ms,
                    "signed": signed,
                },
            )


#: The fields that make an answer.
ANSWER_FIELDS = (*(name for name, _, _ in SERVED_FIELDS), *(name for name, _ in TIMING_FIELDS), *REST_FIELDS)
#: The values of fields that an older version did not write.
_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Timing)} | {"signed": True}


def columns_of(experiment: str, text: str) -> list[AnswerColumns]:
    """Return the answers of a page, in order: usually all of one version, and so in one piece."""
    if not text:
        return []
    lines = text.count(BETWEEN_ANSWERS) + 1
    parts = text.replace(BETWEEN_ANSWERS, BETWEEN_PARTS).split(BETWEEN_PARTS)
    width = len(parts) // lines
    if width * lines == len(parts) and all(parts[at::width].count(parts[at]) == lines for at in range(1, width, 2)):
        texts = {parts[at]: parts[at + 1 :: width] for at in range(1, width, 2)}
        return [AnswerColumns(experiment, parts[::width], texts)]
    return [
        piece
        for _, same in groupby(text.split(BETWEEN_ANSWERS), _names_of)
        for piece in columns_of(experiment, BETWEEN_ANSWERS.join(same))
    ]


def _names_of(line: str) -> list[str]:
    return line.split(BETWEEN_PARTS)[1::2]
