"""Read the single values of a spec: one reader per kind of value, with the words that say what is wanted.

A reader takes a value (a Scalar of a file, or a plain value that was stored as JSON) and returns the typed one. If it
cannot read the value it raises a Misfit, which is turned into a sentence where the place of the value is known. The
readers of colours, sizes, languages, keys of the keyboard and web addresses stand at the end; `FrozenMap` is a mapping
that can be hashed, sent to another process and written as JSON.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from salmon.errors import did_you_mean, listed
from salmon.spec.yaml_tree import Scalar

T = TypeVar("T")
Reader = Callable[[Any], T]

_TRUE = frozenset({"true", "yes", "on", "y", "1"})
_FALSE = frozenset({"false", "no", "off", "n", "0"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_LONGEST_EMAIL = 254
_MONEY = re.compile(r"[0-9]{1,5}(\.[0-9]{1,2})?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)\s*([a-z]+)\s*")
_UNITS_MS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    "ms": 1,
}
_LONGEST = timedelta(days=366)


class Misfit(ValueError):  # noqa: N818 - a verdict on one value, not an error of the program
    """A value that is not what is wanted.

    `sentence` replaces "… must be {wanted}, not …"; `at` leads to a part of the value.
    """

    def __init__(self, wanted: str = "", *, sentence: str = "", hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__(sentence or wanted)
        self.wanted = wanted
        self.sentence = sentence
        self.hint = hint
        self.at = at
        self.parts: tuple[Misfit, ...] = (self,)


def every(items: Iterable[Any], read: Reader[T]) -> tuple[T, ...]:
    """Read each item; all that do not fit are refused together, as the `parts` of one
    Misfit that lead to their places.
    """
    results: list[T] = []
    misfits: list[Misfit] = []
    for place, item in enumerate(items):
        try:
            results.append(read(item))
        except Misfit as misfit:
            for part in misfit.parts:
                part.at = (place, *part.at)
                misfits.append(part)
    if misfits:
        together = Misfit(sentence=misfits[0].sentence or misfits[0].wanted)
        together.parts = tuple(misfits)
        raise together
    return tuple(results)


def scalar_of(value: Any, wanted: str) -> Scalar:
    """Return the value as a Scalar; a list or a mapping is a Misfit."""
    match value:
        case Scalar():
            return value
        case None:
            return Scalar("", quoted=False)
        case bool():
            return Scalar("true" if value else "false", quoted=False)
        case float():
            return Scalar(repr(value), quoted=False)
        case int() if value.bit_length() <= 64:
            return Scalar(repr(value), quoted=False)
        case str():
            return Scalar(value)
        case _:
            raise Misfit(wanted)


def text(value: Any) -> str:
    """Read any text, exactly as it was written: `no`, `1.0` and `2026-01-01` stay what they are."""
    scalar = scalar_of(value, wanted := "a text")
    if not scalar.text and not scalar.quoted:
        raise Misfit(wanted, hint="Write '' where nothing is meant.")
    return scalar.text


def word(pattern: str, wanted: str) -> Reader[str]:
    """Read a text of a certain form."""
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        scalar = scalar_of(value, wanted)
        if not compiled.fullmatch(scalar.text):
            raise Misfit(wanted)
        return scalar.text

    return read


def flag(value: Any) -> bool:
    """Read yes or no."""
    word = scalar_of(value, wanted := "true or false").text.lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise Misfit(wanted)


def whole(low: int | None = None, high: int | None = None, wanted: str = "") -> Reader[int]:
    """Read a whole number within bounds."""
    wanted = wanted or f"a whole number{_bounds(low, high)}"

    def read(value: Any) -> int:
        written = scalar_of(value, wanted).text.strip()
        if not _WHOLE.fullmatch(written):
            raise Misfit(wanted)
        number = int(written)
        if (low is not None and number < low) or (high is not None and number > high):
            raise Misfit(wanted)
        return number

    return read


def number(low: float | None = None, high: float | None = None, *, above: float | None = None) -> Reader[float]:
    """Read a finite number within bounds."""
    wanted = f"a number above {above:g}" if above is not None else f"a number{_bounds(low, high)}"

    def read(value: Any) -> float:
        written = scalar_of(value, wanted).text.strip()
        result = float(written) if _NUMBER.fullmatch(written) else math.nan
        low_enough = (low is None or result >= low) and (above is None or result > above)
        if not math.isfinite(result) or not low_enough or (high is not None and result > high):
            raise Misfit(wanted)
        return result

    return read


def choice(*names: str, wanted: str = "") -> Reader[str]:
    """Read one of a few words; case does not matter."""
    wanted = wanted or listed(names)
    folded = {name.casefold(): name for name in names}

    def read(value: Any) -> str:
        written = scalar_of(value, wanted).text
        if written.casefold() not in folded:
            raise Misfit(wanted, hint=did_you_mean(written, names))
        return folded[written.casefold()]

    return read


def share(value: Any) -> float:
    """Read a share in [0, 1], written as 15%, 15 or .15."""
    wanted = "a percentage from 0% to 100%, such as 15%"
    written = scalar_of(value, wanted).text.strip()
    digits = written.removesuffix("%").strip()
    if not _NUMBER.fullmatch(digits):
        raise Misfit(wanted)
    amount = Decimal(digits)
    if amount == 1 and not written.endswith("%"):
        raise Misfit(sentence="{label} is 1, which could mean 1% or 100%.", hint="Write 1% or 100%.")
    if written.endswith("%") or amount > 1:
        amount /= 100
    if not 0 <= amount <= 1:
        raise Misfit(wanted)
    return float(amount)


def money(value: Any) -> Decimal:
    """Read an amount with at most two digits behind the point, from 0.01 to 10,000."""
    wanted = "an amount with at most two digits behind the point, from 0.01 to 10000, such as 0.50"
    written = scalar_of(value, wanted).text.strip()
    if not _MONEY.fullmatch(written) or not Decimal("0.01") <= Decimal(written) <= 10_000:
        raise Misfit(wanted)
    return Decimal(written)


def percent(share_of_whole: float) -> str:
    """Return the text that `share` reads back as exactly this number."""
    amount = (Decimal(repr(share_of_whole)) * 100).normalize()
    return f"{amount:f}%" if amount > Decimal("1e-9") or not amount else f"{amount}%"


def duration(value: Any) -> timedelta:
    """Read a length of time with its unit: 2h, 30s, 15min, 1h 30min."""
    wanted = "a length of time with its unit, such as 30s, 15min or 2h"
    if isinstance(value, timedelta):
        return value
    written = scalar_of(value, wanted).text.strip().lower()
    if written == "0":
        return timedelta(0)
    parts = list(_DURATION_PART.finditer(written))
    if not parts or "".join(part[0] for part in parts) != written or any(part[2] not in _UNITS_MS for part in parts):
        raise Misfit(wanted)
    total_ms = sum((Decimal(part[1]) * _UNITS_MS[part[2]] for part in parts), Decimal(0))
    if total_ms > Decimal(_LONGEST.total_seconds() * 1000):
        raise Misfit("at most a year")
    return timedelta(milliseconds=round(total_ms))


def keeping(value: Any) -> timedelta | None:
    """Read how long something is kept: `forever`, which is None, or a length of time from a day to a hundred years."""
    wanted = "forever, or a length of time from 1d to 36500d, such as 90d"
    if value is None or isinstance(value, timedelta):
        return value
    written = scalar_of(value, wanted).text.strip().lower()
    if written == "forever":
        return None
    found = re.fullmatch(r"(\d{1,5})\s*d", written)
    if found is None or not 1 <= int(found[1]) <= 36_500:
        raise Misfit(wanted)
    return timedelta(days=int(found[1]))


def keeping_text(length: timedelta | None) -> str:
    """Return the text that `keeping` reads back as this."""
    return "forever" if length is None else f"{length.days}d"


def waiting(value: Any) -> timedelta:
    """Read a length of time of at least a minute."""
    length = duration(value)
    if length < timedelta(minutes=1):
        raise Misfit("at least 1min")
    return length


def duration_text(length: timedelta) -> str:
    """Return the shortest text that `duration` reads back as this length, to the millisecond."""
    total_ms = round(length / timedelta(milliseconds=1))
    for unit in ("d", "h", "min", "s"):
        if total_ms and total_ms % _UNITS_MS[unit] == 0:
            return f"{total_ms // _UNITS_MS[unit]}{unit}"
    return f"{total_ms}ms" if total_ms else "0"


def moment(value: Any) -> datetime:
    """Read a date, or a date and a time, in UTC unless it says otherwise."""
    wanted = "a date and time such as 2027-01-31 18:00 (UTC)"
    written = scalar_of(value, wanted).text.strip()
    try:
        result = datetime.fromisoformat(written)
    except ValueError:
        raise Misfit(wanted) from None
    result = result if result.tzinfo else result.replace(tzinfo=UTC)
    try:
        return result.astimezone(UTC)
    except OverflowError:
        raise Misfit(wanted) from None


def loose(value: Any) -> Any:
    """Read a value without rules: yes, no, numbers and nothing as YAML means them, else text; lists and mappings of
    these.
    """
    if isinstance(value, dict):
        return {str(key): loose(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [loose(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return _as_yaml_means(value) if isinstance(value, Scalar) and not value.quoted else getattr(value, "text", value)


def _as_yaml_means(scalar: Scalar) -> str | bool | float | None:
    if scalar.empty:
        return None
    if scalar.text.lower() in (_TRUE | _FALSE) - {"y", "n", "1", "0"}:
        return scalar.text.lower() in _TRUE
    if _WHOLE.fullmatch(scalar.text):
        return int(scalar.text)
    if _NUMBER.fullmatch(scalar.text) and math.isfinite(float(scalar.text)):
        return float(scalar.text)
    return scalar.text


def _bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:,} to {high:,}"
    if low is not None:
        return f" of at least {low:,}"
    return f" of at most {high:,}" if high is not None else ""


K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMap(Mapping[K, V_co]):
    """An immutable mapping in the order given; two are equal when they hold the same, in whatever order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V_co] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self._items),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validated as a dict, kept frozen, written as a dict."""
        key, value = get_args(source) or (Any, Any)
        inner = core_schema.dict_schema(handler.generate_schema(key), handler.generate_schema(value))
        return core_schema.no_info_before_validator_function(
            _thaw,
            core_schema.no_info_after_validator_function(cls, inner),
            serialization=core_schema.plain_serializer_function_ser_schema(dict, return_schema=inner),
        )


def _thaw(value: Any) -> Any:
    return dict(value) if isinstance(value, FrozenMap) else value  # pyright: ignore[reportUnknownVariableType]


_NAMED = """
aliceblue antiquewhite aqua aquamarine azure beige bisque black blanchedalmond blue
blueviolet brown burlywood cadetblue chartreuse chocolate coral cornflowerblue cornsilk crimson cyan darkblue
darkcyan darkgoldenrod darkgray darkgreen darkgrey darkkhaki darkmagenta darkolivegreen darkorange darkorchid
darkred darksalmon darkseagreen darkslateblue darkslategray darkslategrey darkturquoise darkviolet deeppink
deepskyblue dimgray dimgrey dodgerblue firebrick floralwhite forestgreen fuchsia gainsboro ghostwhite gold goldenrod
gray green greenyellow grey honeydew hotpink indianred indigo ivory khaki lavender lavenderblush lawngreen
lemonchiffon lightblue lightcoral lightcyan lightgoldenrodyellow lightgray lightgreen lightgrey lightpink
lightsalmon lightseagreen lightskyblue lightslategray lightslategrey lightsteelblue lightyellow lime limegreen linen
magenta maroon mediumaquamarine mediumblue mediumorchid mediumpurple mediumseagreen mediumslateblue
mediumspringgreen mediumturquoise mediumvioletred midnightblue mintcream mistyrose moccasin navajowhite navy oldlace
olive olivedrab orange orangered orchid palegoldenrod palegreen paleturquoise palevioletred papayawhip peachpuff
peru pink plum powderblue purple rebeccapurple red rosybrown royalblue saddlebrown salmon sandybrown seagreen
seashell sienna silver skyblue slateblue slategray slategrey snow springgreen steelblue tan teal thistle tomato
transparent turquoise violet wheat white whitesmoke yellow yellowgreen
"""
NAMED = frozenset(re.findall(r"[a-z]+", _NAMED))

_HEX = re.compile(r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})")
_PART = r"\s*[0-9]{1,3}(?:\.[0-9]{1,6})?(?:%|deg)?\s*"
_FUNCTION = re.compile(rf"(?:rgb|hsl)a?\({_PART}(?:[,/ ]{_PART}){{2,3}}\)")


def is_colour(text: str) -> bool:
    """Whether a style sheet accepts this as a colour: a name, #rgb, #rrggbb, rgb(…) or hsl(…)."""
    return text.lower() in NAMED or bool(_HEX.fullmatch(text) or _FUNCTION.fullmatch(text.lower()))


_SIZE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(px|em|rem|vw|vh|vmin|vmax|%)?")
_KEY_NAMES = (
    *("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Enter", "Home", "End", "PageUp", "PageDown"),
    *("Backspace", "Delete", "Insert", "Shift", "Control", "Alt", "Escape"),
    *(f"F{number}" for number in range(1, 13)),
)


#: The size of targets that fill the window.
FILL = "fill"


def size(value: Any) -> str:
    """Read a length as style sheets write it, or `fill`; a bare number is pixels."""
    wanted = "a size such as 320px, or fill"
    written = scalar_of(value, wanted).text.strip()
    if written == FILL:
        return written
    match = _SIZE.fullmatch(written)
    if not match or not float(match[1]):
        raise Misfit(wanted)
    return match[1] + (match[2] or "px")


def colour(value: Any) -> str:
    """Read a colour as style sheets write it."""
    wanted = "a colour such as white, #ffcc00 or rgb(255, 204, 0)"
    scalar = scalar_of(value, wanted)
    if not is_colour(scalar.text.strip()):
        raise Misfit(wanted, hint="In YAML, # begins a comment: put the colour in quotes." if scalar.empty else "")
    return scalar.text.strip()


#: Reads a language tag: en, de, pt-BR.
language = word(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}", "a language code such as en, de or pt-BR")


def key_name(value: Any) -> str:
    """Read a key of the keyboard by its name in browsers (KeyboardEvent.key): f, ArrowLeft, F2."""
    wanted = "a key as browsers call it, such as f, 1 or ArrowLeft"
    written = scalar_of(value, wanted).text
    if len(written) == 1 and written.isprintable() and not written.isspace():
        return written
    return choice(*_KEY_NAMES, wanted=wanted)(value)


def origin(value: Any) -> str:
    """Read the origin of a page: scheme, host and port, as browsers name it."""
    wanted = "an origin such as https://lab.example.org, without a path"
    written = web_address(value).rstrip("/")
    parts = urlsplit(written)
    if parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise Misfit(wanted)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def email(value: Any) -> str:
    """Read an e-mail address."""
    wanted = "an e-mail address such as ada@lab.example.org"
    written = scalar_of(value, wanted).text.strip()
    if not _EMAIL.fullmatch(written) or len(written) > _LONGEST_EMAIL:
        raise Misfit(wanted)
    return written


def secure_address(value: Any) -> str:
    """Read an address that begins with https://."""
    written = web_address(value)
    if not written.startswith("https://"):
        raise Misfit("a web address that begins with https://")
    return written


def web_address(value: Any) -> str:
    """Read an address that a browser can be sent to: http or https, with a host."""
    wanted = "a web address that begins with https://"
    written = scalar_of(value, wanted).text.strip()
    try:
        parts = urlsplit(written)
        host = parts.hostname
    except ValueError:
        raise Misfit(wanted) from None
    if parts.scheme not in {"http", "https"} or not host or re.search(r"[\s\x00-\x1f<>\"\\]", written):
        raise Misfit(wanted)
    return written
