"""Clean the HTML that experimenters write, unless they ask for it as it is."""

import html
import re

import nh3

from salmon.spec.manifest import text_kind

_MEDIA_ATTRIBUTES = {
    "src",
    "controls",
    "autoplay",
    "loop",
    "muted",
    "playsinline",
    "preload",
    "poster",
    "width",
    "height",
}
_ATTRIBUTES = {
    **{tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()},
    "*": {"class", "id", "style", "title", "lang", "dir", "role", "aria-label", "aria-hidden"},
    "video": _MEDIA_ATTRIBUTES,
    "audio": _MEDIA_ATTRIBUTES,
    "source": {"src", "type"},
}
_ATTRIBUTES["img"] = _ATTRIBUTES.get("img", set()) | {"src", "alt", "width", "height"}
_TAGS = nh3.ALLOWED_TAGS | {"video", "audio", "source", "section"}
_ELSEWHERE = re.compile(
    r"""(?:src|href|poster)\s*=\s*["']?\s*(?:https?:)?//|url\(\s*["']?\s*(?:https?:)?//""", re.IGNORECASE
)

_MEDIA_ADDRESS = re.compile(r"""([="'(\s])/media/(?=[0-9a-f])""")


def clean(text: str, *, trusted: bool) -> str:
    """Return the text without scripts, handlers, frames and forms; unchanged where the spec says `trusted: true`."""
    if trusted:
        return text
    return nh3.clean(text, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes={"http", "https", "mailto", "data"})


def prose(text: str, *, trusted: bool) -> str:
    """Return a text of several sentences as HTML: written as HTML it is cleaned, otherwise empty lines divide
    paragraphs.
    """
    if text_kind(text) == "html":
        return clean(text, trusted=trusted)
    parts = [part.strip() for part in re.split(r"\n\s*\n", text)]
    return "".join("<p>" + html.escape(part).replace("\n", "<br>") + "</p>" for part in parts if part)


def plain(text: str) -> str:
    """Return the words of some HTML, for places that show no tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def place_media(text: str, mount: str) -> str:
    """Return some HTML whose media have addresses below the path that a proxy shows this server under."""
    return _MEDIA_ADDRESS.sub(rf"\1{mount}/media/", text) if mount else text


def refers_elsewhere(text: str) -> bool:
    """Return whether some HTML shows or plays something from another server."""
    return bool(_ELSEWHERE.search(text))
