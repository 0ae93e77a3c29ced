"""HTML that experimenters write, made harmless unless they ask for it raw."""

from __future__ import annotations

import nh3

_ATTRIBUTES = {
    **{tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()},
    "*": {"class", "id", "style", "title", "lang", "dir"},
}
_ATTRIBUTES["img"] = _ATTRIBUTES.get("img", set()) | {"src", "alt", "width", "height"}


def clean(text: str, *, trusted: bool) -> str:
    """The text without scripts, handlers, frames and forms; unchanged where the spec says `trusted: true`."""
    if trusted:
        return text
    return nh3.clean(text, attributes=_ATTRIBUTES, url_schemes={"http", "https", "mailto", "data"})
