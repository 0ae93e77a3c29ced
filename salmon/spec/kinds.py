"""The kinds of value that the schema is made of: each a type, its reader, and how it is written back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from salmon.spec import appearance, arguments, values
from salmon.spec.values import Misfit

MAX_TARGETS = 100_000
MIN_TARGETS = 3  # a triplet is made of three
SAMPLER_NAME = r"[A-Za-z0-9_-]{1,40}"


def _n_targets(info: ValidationInfo) -> int | None:
    return (info.context or {}).get("n_targets")


def _target(value: Any) -> str:
    if isinstance(value, dict):
        raise Misfit(
            sentence="{label} reads as a key and a value.",
            hint="Put quotes around text that contains a colon and a space.",
        )
    if isinstance(value, list):
        raise Misfit(sentence="{label} reads as a list.", hint="Put quotes around text that begins with a bracket.")
    scalar = values.scalar_of(value, "a text")
    if not scalar.quoted and not scalar.text:
        raise Misfit(sentence="{label} is empty.", hint="Write the target's text, or '' for an intended blank.")
    return scalar.text


def target_list(value: Any) -> Any:
    """The targets one by one, or their number."""
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if 0 < len(items) < MIN_TARGETS:
            raise Misfit(sentence=f"{_counted(len(items))}; a triplet needs at least three.", hint="Add targets.")
        if len(items) > MAX_TARGETS:
            raise Misfit(f"at most {MAX_TARGETS:,} targets")
        return items
    count = values.whole(
        MIN_TARGETS, MAX_TARGETS, f"a list of targets, or their number from {MIN_TARGETS} to {MAX_TARGETS:,}"
    )
    return tuple(str(number) for number in range(count(value)))


def _counted(count: int) -> str:
    return "There is one target" if count == 1 else f"There are {count} targets"


def _query(value: Any, info: ValidationInfo) -> tuple[int, int, int]:
    return arguments.query(value, _n_targets(info))


def _practice_query(value: Any, info: ValidationInfo) -> tuple[int, int, int, int]:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 4:
        raise Misfit("a practice query of four targets, [head, left, right, nearer]")
    values.every(items, lambda item, place: arguments.index(item, _n_targets(info), at=(place,)))
    head, left, right = arguments.query(items[:3], _n_targets(info))
    nearer = arguments.index(items[3], _n_targets(info), at=(3,))
    if nearer not in {left, right}:
        raise Misfit(
            sentence="{label} says that neither of its two comparisons is nearer.",
            hint=f"Write {left} or {right} last.",
        )
    return head, left, right, nearer


def _viewport(value: Any) -> Any:
    wanted = "a width and a height in pixels, such as [800, 600]"
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit(wanted)
    return values.every(items, _pixels_at)


def _pixels_at(value: Any, place: int) -> int:
    try:
        return values.whole(1, 10_000, "a whole number of pixels from 1 to 10,000")(value)
    except Misfit as misfit:
        raise Misfit(misfit.wanted, at=(place,)) from misfit


def _keys(value: Any) -> Any:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit("two keys, for left and right, such as [ArrowLeft, ArrowRight]")
    read = values.every(items, _key_at)
    if read[0].casefold() == read[1].casefold():
        raise Misfit(sentence="{label} names the same key for left and right.", hint="Choose two different keys.")
    return read


def _key_at(value: Any, place: int) -> str:
    try:
        return appearance.key_name(value)
    except Misfit as misfit:
        raise Misfit(misfit.wanted, hint=misfit.hint, at=(place,)) from misfit


def _deeply_frozen(value: Any) -> Any:
    return tuple(_deeply_frozen(item) for item in value) if isinstance(value, list | tuple) else value  # pyright: ignore[reportUnknownVariableType]


def _percentage(value: Any) -> int:
    wanted = "a whole percentage from 0 to 100"
    written = values.scalar_of(value, wanted)
    return values.whole(0, 100, wanted)(values.Scalar(written.text.strip().removesuffix("%"), quoted=False))


Text = Annotated[str, BeforeValidator(values.text)]
Target = Annotated[str, BeforeValidator(_target)]
Name = Annotated[str, BeforeValidator(values.word(SAMPLER_NAME, "a name of letters, digits, - and _ (at most 40)"))]
Flag = Annotated[bool, BeforeValidator(values.flag)]
Count = Annotated[int, BeforeValidator(values.whole(0))]
Positive = Annotated[int, BeforeValidator(values.whole(1))]
Integer = Annotated[int, BeforeValidator(values.whole())]
Milliseconds = Annotated[
    int, BeforeValidator(values.whole(0, 3_600_000, "a whole number of milliseconds from 0 to 3,600,000"))
]
Percentage = Annotated[int, BeforeValidator(_percentage)]
Share = Annotated[float, BeforeValidator(values.share), PlainSerializer(values.percent, str, when_used="json")]
Duration = Annotated[
    timedelta, BeforeValidator(values.duration), PlainSerializer(values.duration_text, str, when_used="json")
]
Moment = Annotated[datetime, BeforeValidator(values.moment), PlainSerializer(datetime.isoformat, str, when_used="json")]
Size = Annotated[str, BeforeValidator(appearance.size)]
Colour = Annotated[str, BeforeValidator(appearance.colour)]
Language = Annotated[str, BeforeValidator(appearance.language)]
WebAddress = Annotated[str, BeforeValidator(appearance.web_address)]
Keys = Annotated[tuple[str, str], BeforeValidator(_keys)]
Viewport = Annotated[tuple[int, int], BeforeValidator(_viewport)]
Query = Annotated[tuple[int, int, int], BeforeValidator(_query)]
PracticeQuery = Annotated[tuple[int, int, int, int], BeforeValidator(_practice_query)]
Argument = Annotated[arguments.Argument, BeforeValidator(_deeply_frozen)]
Loose = Annotated[Any, BeforeValidator(values.loose)]


def one_of(union: Any) -> BeforeValidator:
    """One of the words of a Literal."""
    return BeforeValidator(values.choice(*get_args(union)))


def at_least(count: int) -> BeforeValidator:
    """A list that is not shorter than this."""

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) < count:  # pyright: ignore[reportUnknownArgumentType]
            raise Misfit(f"a list of at least {count}")
        return value  # pyright: ignore[reportUnknownVariableType]

    return BeforeValidator(read)
