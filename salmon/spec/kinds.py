"""Define the kinds of value that an experiment's file may hold, each with its reader and how it is written back.

Durations are timedeltas and shares are numbers in [0, 1]; the file writes them as `2h` and `15%`. Targets are numbered
from 0 in the order in which they are written. `Part` is the base of all models of `salmon.spec.schema`.
"""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationInfo, model_validator

from salmon.errors import did_you_mean
from salmon.spec import sampler_arguments, values
from salmon.spec.values import Misfit
from salmon.spec.yaml_tree import Scalar

MAX_TARGETS = 100_000
MIN_TARGETS = 3  # a triplet is made of three
_NUMBER = re.compile(r"[-+]?[0-9]+")
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
    """Read the targets one by one, or their number."""
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if 0 < len(items) < MIN_TARGETS:
            raise Misfit(sentence=f"{_target_count(len(items))}; a triplet needs at least three.", hint="Add targets.")
        if len(items) > MAX_TARGETS:
            raise Misfit(f"at most {MAX_TARGETS:,} targets")
        return items
    count = values.whole(
        MIN_TARGETS, MAX_TARGETS, f"a list of targets, or their number from {MIN_TARGETS} to {MAX_TARGETS:,}"
    )
    return tuple(str(number) for number in range(count(value)))


def _target_count(count: int) -> str:
    return "There is one target" if count == 1 else f"There are {count} targets"


def _query(value: Any, info: ValidationInfo) -> tuple[int, int, int]:
    return sampler_arguments.query(value, _n_targets(info))


def _practice_query(value: Any, info: ValidationInfo) -> tuple[int, int, int, int]:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 4:
        raise Misfit("a practice query of four targets, [head, left, right, nearer]")
    n_targets = _n_targets(info)
    written = [item.text if isinstance(item, Scalar) else str(item) for item in items]
    items = _indices_of_names(items, (info.context or {}).get("target_names"), is_known=n_targets is not None)
    *_, nearer = values.every(items, lambda item: sampler_arguments.index(item, n_targets))
    head, left, right = sampler_arguments.query(items[:3], n_targets)
    if nearer not in {left, right}:
        raise Misfit(
            sentence="{label} says that neither of its two comparisons is nearer.",
            hint=f"Write {written[1]} or {written[2]} last.",
        )
    return head, left, right, nearer


def _obvious_query(value: Any, info: ValidationInfo) -> tuple[int, int, int]:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 3:
        raise Misfit("an obvious query of three targets, [head, nearer, farther]")
    n_targets = _n_targets(info)
    items = _indices_of_names(items, (info.context or {}).get("target_names"), is_known=n_targets is not None)
    return sampler_arguments.query(items, n_targets)


def _indices_of_names(items: list[Any], names: tuple[str, ...] | None, *, is_known: bool) -> list[Any]:
    """Return items with the numbers of targets for their names, which may be file names or texts.

    Before the ZIP has been read, every name that is no number stands for some target.
    """
    unread = list(dict.fromkeys(item.text for item in items if isinstance(item, Scalar)))

    def number(item: Any) -> Any:
        if not isinstance(item, Scalar) or _NUMBER.fullmatch(item.text.strip()):
            return item
        if not is_known and names is None:
            return Scalar(str(unread.index(item.text)), quoted=False, line=item.line, column=item.column)
        if item.text not in (names or ()):
            raise Misfit(
                sentence="{label}: there is no target {found}.",
                hint=did_you_mean(item.text, names or ()) or "Write its number, counted from 0, or its name.",
            )
        return Scalar(str((names or ()).index(item.text)), quoted=False, line=item.line, column=item.column)

    return list(values.every(items, number))


def _viewport(value: Any) -> Any:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit("a width and a height in pixels, such as [800, 600]")
    return values.every(items, values.whole(1, 10_000, "a whole number of pixels from 1 to 10,000"))


def _keys(value: Any) -> Any:
    items: list[Any] = list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]
    if len(items) != 2:
        raise Misfit("two keys, for left and right, such as [ArrowLeft, ArrowRight]")
    read = values.every(items, values.key_name)
    if read[0].casefold() == read[1].casefold():
        raise Misfit(sentence="{label} has the same key for left and right.", hint="Choose two different keys.")
    return read


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
Money = Annotated[Decimal, BeforeValidator(values.money), PlainSerializer(str, str, when_used="json")]
Duration = Annotated[
    timedelta, BeforeValidator(values.duration), PlainSerializer(values.duration_text, str, when_used="json")
]
Waiting = Annotated[
    timedelta, BeforeValidator(values.waiting), PlainSerializer(values.duration_text, str, when_used="json")
]
Keeping = Annotated[
    timedelta | None, BeforeValidator(values.keeping), PlainSerializer(values.keeping_text, str, when_used="json")
]
Moment = Annotated[datetime, BeforeValidator(values.moment), PlainSerializer(datetime.isoformat, str, when_used="json")]
Size = Annotated[str, BeforeValidator(values.size)]
Colour = Annotated[str, BeforeValidator(values.colour)]
Language = Annotated[str, BeforeValidator(values.language)]
Origin = Annotated[str, BeforeValidator(values.origin)]
EMail = Annotated[str, BeforeValidator(values.email)]
SecureAddress = Annotated[str, BeforeValidator(values.secure_address)]
WebAddress = Annotated[str, BeforeValidator(values.web_address)]
Keys = Annotated[tuple[str, str], BeforeValidator(_keys)]
Viewport = Annotated[tuple[int, int], BeforeValidator(_viewport)]
Query = Annotated[tuple[int, int, int], BeforeValidator(_query)]
ObviousQuery = Annotated[tuple[int, int, int], BeforeValidator(_obvious_query)]
PracticeQuery = Annotated[tuple[int, int, int, int], BeforeValidator(_practice_query)]
Argument = Annotated[sampler_arguments.Argument, BeforeValidator(_deeply_frozen)]
Loose = Annotated[Any, BeforeValidator(values.loose)]


def one_of(union: Any) -> BeforeValidator:
    """Return a validator for one of the words of a Literal."""
    return BeforeValidator(values.choice(*get_args(union)))


def at_least(count: int) -> BeforeValidator:
    """Return a validator for a list that is not shorter than this."""

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) < count:  # pyright: ignore[reportUnknownArgumentType]
            raise Misfit(f"a list of at least {count}")
        return value  # pyright: ignore[reportUnknownVariableType]

    return BeforeValidator(read)


def _is_nothing(value: Any) -> bool:
    return isinstance(value, Scalar) and value.empty


class Part(BaseModel):
    """A frozen part of a spec that refuses undeclared keys. A key without a value means its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _default_for_nothing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        default = {key for key, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in data.items() if not (_is_nothing(value) and key in default)}  # pyright: ignore[reportUnknownVariableType]
