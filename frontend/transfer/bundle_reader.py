"""What is in a bundle, as typed values: each line is checked when it is read, so that what follows need not ask again.

The fields of hashes and stream entries stay text, byte for byte, because they are stored as they lie here; the models
say what the program will read in them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from math import isfinite
from operator import lt
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Json, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from frontend.errors import BundleError, NotFoundError
from frontend.experiments import ParsedRevision, parse_revision
from frontend.store.answers import MINUTE_MS, recount
from frontend.store.experiments import Revision
from frontend.store.statuses import PlatformStatus, Status
from frontend.transfer.bundle_writer import MEDIA
from frontend.transfer.bundle_zip import BundleZip
from salmon.errors import SpecError
from salmon.spec import dump_spec, parse_spec
from salmon.spec.kinds import SAMPLER_NAME
from salmon.wire import decode_answer, decode_array
from salmon.wire.answer_pages import ANSWER_FIELDS, AnswerColumns
from salmon.wire.keys import place_of

Fields = dict[str, str]
Entry = tuple[str, Fields]

_PARTICIPANT = re.compile(r"[a-z0-9]{12}")
_QUERY = re.compile(r"[0-9]{1,7},[0-9]{1,7},[0-9]{1,7}|")
_MEDIUM = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_LONGEST_VALUE = 100_000
_LONGEST_NAME = 200
_LONGEST_SLUG = 80
#: An answer's values, and control characters, which separate them where they are read.
_LONGEST_ANSWER_VALUE = 200
_CONTROL = re.compile(r"[\x00-\x1f]")
_MOST_DIMENSIONS = 1000
#: Unix milliseconds beyond any clock.
_LATEST_MS = 10**14
#: Answers that are checked at a time.
_ANSWERS = 1000


#: The name of an experiment in its link.
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
STREAM_ID = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")
_PLACE = re.compile(rf"0|{STREAM_ID.pattern}")
_LETTERS = re.compile(r"[rwt]{0,10000}")
_WHOLE = re.compile(r"[0-9]{1,15}")


def _is_finite(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _is_measure(text: str) -> bool:
    return text in {"", "nan", "inf"} or _is_finite(text)


def _text_that(fits: Callable[[str], object], wanted: str) -> AfterValidator:
    """Return a validator of texts for which `fits` is true; `wanted` says what the others are."""

    def read(text: str) -> str:
        if not fits(text):
            raise PydanticCustomError("unfit", wanted)  # pyright: ignore[reportArgumentType]
        return text

    return AfterValidator(read)


Whole = Annotated[str, _text_that(_WHOLE.fullmatch, "no whole number")]
Measure = Annotated[str, _text_that(_is_measure, "no number")]


class HashFields(BaseModel):
    """Fields of a hash or of a stream's entry. Fields that the model does not name are kept and not looked at."""

    model_config = ConfigDict(extra="allow", frozen=True)


class StateFields(HashFields):
    """The state of an experiment; its other fields are counters."""

    slug: str
    state: str
    revision: Whole
    created_ms: Whole
    opened_ms: Whole


class ConsentFields(HashFields):
    """A consent that was given."""

    agreed_ms: Annotated[int, Field(strict=True)]
    version: str


class AttemptFields(HashFields):
    """An attempt at the comprehension questions."""

    options: list[str]


class PersonFields(HashFields):
    """A participant. Fields called `step:NAME`, `consent:VERSION` and so on are grouped by their first word."""

    puid: str
    source: str
    status: Annotated[str, _text_that(frozenset(Status).__contains__, "no known status")]
    first_ms: Whole
    seen_ms: Whole = "0"
    last_ms: Whole = "0"
    completed_ms: Whole = "0"
    redirected_ms: Whole = "0"
    declined_ms: Whole = "0"
    keep_ms: Whole = "0"
    answers: Whole = "0"
    turns: Whole = "0"
    spares: Whole = "0"
    place: Whole = "0"
    round: Whole = "0"
    platform_ms: Whole = "0"
    platform_status: Annotated[str, _text_that(frozenset(PlatformStatus).__contains__, "no known status")] = (
        PlatformStatus.ACTIVE
    )
    credit: Literal["", "asked", "granted", "refused"] = ""
    credit_ms: Whole = "0"
    pasted: Whole = "0"
    copied: Whole = "0"
    withdrawn_ms: Whole = "0"
    save_incomplete: Whole = "0"
    practice: Json[Any] = None
    step: dict[str, Whole] = Field(default_factory=dict)
    consent: dict[str, Json[ConsentFields]] = Field(default_factory=dict)
    comprehension: dict[Whole, Json[AttemptFields]] = Field(default_factory=dict)
    question: dict[str, Json[Any]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _group(cls, fields: Mapping[str, str]) -> dict[str, Any]:
        grouped: dict[str, Any] = {}
        for name, text in fields.items():
            kind, colon, rest = name.partition(":")
            if colon and kind in {"step", "consent", "comprehension", "question"}:
                grouped.setdefault(kind, {})[rest] = text
            else:
                grouped[name] = text
        return grouped


class EventFields(HashFields):
    """Something that happened on a page."""

    trial: Whole = "0"
    received_ms: Whole = "0"
    client_ms: Annotated[str, _text_that(_is_finite, "no number")] = "-1"


class ChangeFields(HashFields):
    """Who did what to the experiment."""

    at_ms: Whole
    by: str
    what: str
    detail: str


class ModelFields(BaseModel):
    """The numbers of a model or of a line of history; whatever it does not name is a number too."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Measure] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    generation: Whole
    absorbed: Whole
    loss: Measure
    cursor: Annotated[str, _text_that(_PLACE.fullmatch, "no place in the log")]
    published_ms: Whole = "0"
    held_total: Whole = "0"
    thinned_at: Whole = "0"
    reported_of: Whole = "0"
    held_recent: Annotated[str, _text_that(_LETTERS.fullmatch, "no predictions")] = ""


#: What is wrong with a group of fields, whatever is wrong inside of them.
_GROUPS = {"consent": "no consent", "comprehension": "no answers"}
#: The model of the entries of each stream.
_ENTRIES: Mapping[str, type[HashFields]] = {"events.jsonl": EventFields, "changes.jsonl": ChangeFields}


@dataclass(frozen=True)
class Outline:
    """What is known of an experiment before its answers are read. `n` targets, over all revisions."""

    slug: str
    state: Fields
    revisions: Mapping[int, str]
    samplers: frozenset[str]
    n: int
    media: frozenset[str]


@dataclass(frozen=True)
class Person:
    """A participant: the fields as they lie in the store, and the queries seen."""

    participant: str
    fields: Fields
    asked: tuple[str, ...]


@dataclass(frozen=True)
class ModelArrays:
    """A model, or a line of history where `stream_id` is not empty; arrays as .npy bytes."""

    sampler: str
    stream_id: str
    numbers: Fields
    arrays: Mapping[str, bytes]


@dataclass(frozen=True)
class Totals:
    """Counters that follow from the answers: of the state, of each participant, and those behind the console's figures.

    `last` is the place of the last answer in the log.
    """

    state: Mapping[str, int]
    people: Mapping[str, int]
    counts: Mapping[str, int]
    last: str


def outline_of(bundle: BundleZip) -> Outline:
    """Return the state and the revisions; BundleError where a file that a revision names is missing."""
    where = "machine/state.json"
    state = _read_fields(bundle.text("state.json"), where)
    check_fields(StateFields, state, where)
    revisions: dict[int, str] = {}
    samplers: set[str] = set()
    media: set[str] = set()
    n = 0
    for where, (key, text) in _rows_of(bundle, "revisions.jsonl", 2):
        require(isinstance(key, int) and isinstance(text, str), where, "is no revision")
        parsed = _read_revision(text, where)
        revisions[key] = text
        samplers |= set(parsed.spec.samplers)
        n = max(n, len(parsed.targets))
        media |= {file.media for file in parsed.files if file.media}
    newest = int(state["revision"])
    require(newest in revisions, where, f"lacks revision {newest}")
    named = bundle.manifest.get("media_problems") or {}
    require(isinstance(named, dict), "manifest.json", "has no list of media that are missing")
    missing = sorted(name for name in media if MEDIA + name not in bundle.names and name not in named)
    require(not missing, MEDIA + (missing or [""])[0], "is missing")
    slug: Any = bundle.manifest.get("slug")
    require(_is_like(slug, SLUG) and len(slug) <= _LONGEST_SLUG, "manifest.json", "names no experiment")
    return Outline(slug, state, revisions, frozenset(samplers), n, frozenset(media))


def arrivals_of(bundle: BundleZip) -> Iterator[tuple[str, str]]:
    """Yield (platform identity, participant)."""
    for where, (identity, participant) in _rows_of(bundle, "arrivals.jsonl", 2):
        require(isinstance(identity, str) and len(identity) <= _LONGEST_NAME * 2, where, "has no identity")
        require(_is_like(participant, _PARTICIPANT), where, "names no participant")
        yield identity, participant


def people_of(bundle: BundleZip) -> Iterator[Person]:
    """Yield every participant."""
    for where, (participant, fields, asked) in _rows_of(bundle, "participants.jsonl", 3):
        require(_is_like(participant, _PARTICIPANT), where, "names no participant")
        require(
            isinstance(asked, list) and all(_is_like(query, _QUERY) for query in asked), where, "has no list of queries"
        )
        found = _read_fields(fields, where)
        check_fields(PersonFields, found, where)
        yield Person(participant, found, tuple(asked))


def answers_of(bundle: BundleZip) -> Iterator[Entry]:
    """Yield (stream id, fields), in the order of the stream, of a bundle whose answers were checked."""
    for _, (stream_id, fields) in bundle.lines("answers.jsonl"):
        yield stream_id, fields


def check_answers(bundle: BundleZip, outline: Outline) -> Iterator[AnswerColumns]:
    """Yield the answers page by page, in the order of the stream, each of them checked."""
    before = (0, 0)
    rows = _rows_of(bundle, "answers.jsonl", 2)
    while page := list(islice(rows, _ANSWERS)):
        found = _columns_of([row for _, row in page])
        if found is not None and _are_answers(found, before, outline.n):
            yield found
        else:  # one after the other, which says which of them is wrong, or that they are of several versions
            at = before
            for where, (stream_id, fields) in page:
                at = _check_order(stream_id, at, where)
                entry = _read_fields(fields, where, longest=_LONGEST_ANSWER_VALUE)
                _check_answer(entry, where, outline.n)
                yield AnswerColumns("", [stream_id], {name: [text] for name, text in entry.items()})
        before = place_of(page[-1][1][0])


def _columns_of(rows: list[list[Any]]) -> AnswerColumns | None:
    """Return rows [stream id, fields] as columns; None where one has other fields than the first, or no text in one."""
    entries = [fields for _, fields in rows]
    if not all(type(fields) is dict for fields in entries):
        return None
    names = list(entries[0])
    if not names or not all(list(fields) == names for fields in entries):
        return None
    texts = dict(zip(names, map(list, zip(*(fields.values() for fields in entries), strict=True)), strict=True))
    if not all(type(text) is str for column in texts.values() for text in column):
        return None
    return AnswerColumns("", [stream_id for stream_id, _ in rows], texts)


def _are_answers(found: AnswerColumns, before: tuple[int, int], n: int) -> bool:
    """Return whether all of these can be answers: what `_check_answer` asks of each, asked of whole columns."""
    if not all(_is_like(stream_id, STREAM_ID) for stream_id in found.stream_ids):
        return False
    places = [before, *map(place_of, found.stream_ids)]
    if not all(map(lt, places, places[1:])):
        return False
    for name, column in found.texts.items():
        if len(name) > _LONGEST_NAME or max(map(len, column)) > _LONGEST_ANSWER_VALUE:
            return False
        if _CONTROL.search(name) or _CONTROL.search("".join(column)):
            return False
    try:
        columns = {name: found.column(name) for name in ANSWER_FIELDS}
    except (KeyError, ValueError):
        return False
    heads, lefts, rights, winners = (columns[name] for name in ("head", "left", "right", "winner"))
    shown = list(zip(lefts, rights, winners, strict=True))
    times = (*columns["received_ms"], *columns["served_ms"])
    return (
        min(*heads, *lefts, *rights) >= 0
        and max(*heads, *lefts, *rights) < n
        and all(left != right and winner in {left, right} for left, right, winner in shown)
        and all(_is_like(name, _PARTICIPANT) for name in set(columns["participant"]))
        and all(re.fullmatch(SAMPLER_NAME, name) for name in set(columns["sampler"]))
        and min(times) >= 0
        and max(times) < _LATEST_MS
    )


def _check_answer(entry: Fields, where: str, n: int) -> None:
    try:
        answer = decode_answer("", entry)
    except (KeyError, ValueError, TypeError) as error:
        raise bundle_error(where, "is no answer") from error
    served = answer.served
    require(max(served.head, served.left, served.right) < n, where, "names a target that is not there")
    require(min(served.head, served.left, served.right) >= 0, where, "names a target that is not there")
    require(answer.winner in {served.left, served.right}, where, "has a winner that was not shown")
    require(served.left != served.right, where, "shows one target twice")
    require(_is_like(served.participant, _PARTICIPANT), where, "names no participant")
    require(bool(re.fullmatch(SAMPLER_NAME, served.sampler)), where, "names no sampler")
    times = (answer.received_ms, served.served_ms)
    require(min(times) >= 0 and max(times) < _LATEST_MS, where, "has no time")


def entries_of(bundle: BundleZip, name: str) -> Iterator[Entry]:
    """Yield (stream id, fields) of events or changes, in the order of the stream."""
    before = (0, 0)
    for where, (stream_id, fields) in _rows_of(bundle, name, 2):
        before = _check_order(stream_id, before, where)
        found = _read_fields(fields, where)
        require(bool(found), where, "is empty")
        check_fields(_ENTRIES[name], found, where)
        yield stream_id, found


def models_of(bundle: BundleZip, outline: Outline) -> Iterator[ModelArrays]:
    """Yield the newest model of each sampler."""
    for where, (sampler, numbers, names) in _rows_of(bundle, "models.jsonl", 3):
        require(isinstance(names, list) and "coordinates" in names, where, "has no coordinates")
        yield _read_arrays(bundle, outline, (sampler, "", numbers, names), f"models/{sampler}", where)


def history_of(bundle: BundleZip, outline: Outline) -> Iterator[ModelArrays]:
    """Yield all generations, sampler by sampler."""
    before: tuple[str, tuple[int, int]] = ("", (0, 0))
    for where, (sampler, stream_id, numbers, names) in _rows_of(bundle, "history.jsonl", 4):
        before = (sampler, _check_order(stream_id, before[1] if sampler == before[0] else (0, 0), where))
        yield _read_arrays(
            bundle, outline, (sampler, stream_id, numbers, names), f"history/{sampler}/{stream_id}", where
        )


def totals_of(bundle: BundleZip, outline: Outline) -> Totals:
    """Return the counters, counted again from the answers; every line of the bundle is checked on the way."""
    state: Counter[str] = Counter()
    people: Counter[str] = Counter()
    last = "0-0"

    def count() -> Iterator[AnswerColumns]:
        nonlocal last
        for page in check_answers(bundle, outline):
            last = page.stream_ids[-1]
            state["answers"] += len(page)
            state.update(f"answers:{sampler}" for sampler in page.column("sampler"))
            people.update(page.column("participant"))
            yield page

    counts = recount(count())
    known: set[str] = set()
    for person in people_of(bundle):
        known.add(person.participant)
        done_ms = person.fields.get("completed_ms", "")
        if done_ms.isdecimal():
            minute = f"completed:{int(done_ms) // MINUTE_MS}"
            counts[minute] = counts.get(minute, 0) + 1
    unknown = sorted(people.keys() - known)
    require(not unknown, "machine/participants.jsonl", f"lacks {len(unknown)} participants who have answered")
    require(
        {participant for _, participant in arrivals_of(bundle)} <= known,
        "machine/arrivals.jsonl",
        "names participants who are not there",
    )
    for _ in chain(
        entries_of(bundle, "events.jsonl"),
        entries_of(bundle, "changes.jsonl"),
        models_of(bundle, outline),
        history_of(bundle, outline),
    ):
        pass
    return Totals(state, people, counts, last)


def media_of(bundle: BundleZip) -> Iterator[str]:
    """Yield the names of the media, each the hash of its content."""
    for name in bundle.names:
        if name.startswith(MEDIA):
            medium = name.removeprefix(MEDIA)
            fits = _is_like(medium, _MEDIUM) and medium.startswith(bundle.manifest["members"][name]["sha256"])
            require(fits, name, "is not named by its content")
            yield medium


def check_fields(model: type[BaseModel], fields: Fields, where: str) -> None:
    """Raise a BundleError, with the place, unless the fields are what the model says."""
    try:
        model.model_validate(fields)
    except ValidationError as error:
        raise bundle_error(where, _describe(error.errors()[0])) from None


def _describe(problem: Any) -> str:
    """Return the predicate of the sentence about the first problem of some fields."""
    name, *inside = map(str, problem["loc"])
    if problem["type"] == "missing" and not inside:
        return f"lacks the field {name}"
    field = f"{name}:{inside[0]}" if inside else name
    if problem["type"] == "json_invalid":
        return f"has no JSON in {field}"
    if name in _GROUPS:
        return f"has {_GROUPS[name]} in {field}"
    return f"has {problem['msg'] if problem['type'] == 'unfit' else 'no text'} in {field}"


def require(holds: bool, where: str, what: str) -> None:
    """Raise a BundleError, with the place, unless something holds."""
    if not holds:
        raise bundle_error(where, what)


def bundle_error(where: str, what: str) -> BundleError:
    """Return the sentence about something in a bundle."""
    return BundleError(f"{where} {what}.", hint="Nothing was imported; use the bundle as it was exported.", where=where)


def _read_arrays(bundle: BundleZip, outline: Outline, row: tuple[Any, ...], folder: str, where: str) -> ModelArrays:
    from numpy import isfinite as is_finite

    sampler, stream_id, numbers, names = row
    require(isinstance(sampler, str) and sampler in outline.samplers, where, "names no sampler of the experiment")
    require(
        isinstance(names, list) and all(_is_like(name, re.compile("[a-z_]{1,40}")) for name in names),
        where,
        "has no arrays",
    )
    arrays = {name: bundle.array(f"{folder}/{name}.npy") for name in names}
    for name, content in arrays.items():
        try:
            array = decode_array(content)
        except (ValueError, EOFError, OSError, SyntaxError, MemoryError) as error:
            raise bundle_error(f"machine/{folder}/{name}.npy", "is no array of numbers") from error
        fits = array.dtype.kind == "f" and array.ndim in {2, 3} and len(array) <= outline.n
        require(fits and max(array.shape[1:], default=0) <= _MOST_DIMENSIONS, where, "has an array of another shape")
        require(bool(is_finite(array).all()), where, "has an array with numbers that are none")
    found = _read_fields(numbers, where)
    check_fields(ModelFields, found, where)
    return ModelArrays(sampler, stream_id, found, arrays)


def _read_revision(text: str, where: str) -> ParsedRevision:
    """Return a revision as it would be served.

    A spec that is stored as JSON is written out and parsed as an uploaded file is: only that checks all it says.
    """
    try:
        parsed = parse_revision(Revision.decode(text))
        checked = parse_spec(dump_spec(parsed.spec), manifest=parsed.manifest, stored=True).spec
    except (NotFoundError, SpecError, TypeError, ValueError, KeyError) as error:
        raise BundleError(
            f"{where} describes an experiment that this version cannot read: {error}",
            hint="Nothing was imported.",
            where=where,
        ) from error
    require(checked == parsed.spec, where, "describes an experiment in values that no file has")
    return parsed


def _check_order(stream_id: Any, before: tuple[int, int], where: str) -> tuple[int, int]:
    require(_is_like(stream_id, STREAM_ID), where, "has no place in the log")
    place = place_of(stream_id)
    require(place > before, where, "is not in order")
    return place


def _read_fields(value: Any, where: str, *, longest: int = _LONGEST_VALUE) -> Fields:
    require(isinstance(value, dict), where, "has no fields")
    for name, text in value.items():
        require(
            len(name) <= _LONGEST_NAME and isinstance(text, str) and len(text) <= longest,
            where,
            "has a field that is too long or no text",
        )
        if longest == _LONGEST_ANSWER_VALUE:
            require(not _CONTROL.search(name) and not _CONTROL.search(text), where, "has control characters")
    return value


def _rows_of(bundle: BundleZip, name: str, length: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield (where it is, entries) of each line of a file, all of which are lists of this length."""
    for number, value in bundle.lines(name):
        where = f"machine/{name}:{number}"
        require(isinstance(value, list) and len(value) == length, where, f"is not a list of {length}")
        yield where, value


def _is_like(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
