"""Values of the page: sizes, colours, languages, keys of the keyboard and addresses on the web."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from salmon.spec.colours import is_colour
from salmon.spec.suggestions import did_you_mean
from salmon.spec.values import Misfit, scalar_of

_SIZE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(px|em|rem|vw|vh|vmin|vmax|%)?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}")
_KEY_NAMES = (
    *("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Enter", "Home", "End", "PageUp", "PageDown"),
    *("Backspace", "Delete", "Insert", "Shift", "Control", "Alt", "Escape"),
    *(f"F{number}" for number in range(1, 13)),
)


def size(value: Any) -> str:
    """A length as style sheets write it; a bare number is pixels."""
    wanted = "a size such as 320px"
    match = _SIZE.fullmatch(scalar_of(value, wanted).text.strip())
    if not match or not float(match[1]):
        raise Misfit(wanted)
    return match[1] + (match[2] or "px")


def colour(value: Any) -> str:
    """A colour as style sheets write it."""
    wanted = "a colour such as white, #ffcc00 or rgb(255, 204, 0)"
    scalar = scalar_of(value, wanted)
    if not is_colour(scalar.text.strip()):
        raise Misfit(wanted, hint="In YAML, # begins a comment: put the colour in quotes." if scalar.empty else "")
    return scalar.text.strip()


def language(value: Any) -> str:
    """A language tag: en, de, pt-BR."""
    wanted = "a language code such as en, de or pt-BR"
    written = scalar_of(value, wanted).text
    if not _LANGUAGE.fullmatch(written):
        raise Misfit(wanted)
    return written


def key_name(value: Any) -> str:
    """A key of the keyboard as browsers call it (KeyboardEvent.key): f, ArrowLeft, F2."""
    wanted = "a key as browsers call it, such as f, 1 or ArrowLeft"
    written = scalar_of(value, wanted).text
    if len(written) == 1 and written.isprintable() and not written.isspace():
        return written
    folded = {name.casefold(): name for name in _KEY_NAMES}
    if written.casefold() not in folded:
        raise Misfit(wanted, hint=did_you_mean(written, _KEY_NAMES))
    return folded[written.casefold()]


def web_address(value: Any) -> str:
    """An address that a browser can be sent to: http or https, with a host."""
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
