"""Refuse SVG pictures that run scripts, react to events or load anything from elsewhere.

The file is read by a streaming XML parser that expands no entities, so that a file may be of any size. It is refused
and not cleaned: participants must see the file that the experimenter drew.
"""

import re
from xml.parsers import expat

_FORBIDDEN = frozenset(
    {"script", "foreignobject", "iframe", "embed", "object", "handler", "listener", "audio", "video"}
)
_ADDRESSES = frozenset(
    {"href", "src", "srcset", "base", "action", "formaction", "poster", "background", "data", "ping"}
)
_DATA_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp)[;,]", re.IGNORECASE)
_STYLE_ADDRESS = re.compile(
    r"url\(\s*+['\"]?+\s*+(?!#|data:image/(?:png|jpeg|gif|webp)[;,])([^)]{1,60})", re.IGNORECASE
)
_STYLE_IMPORT = re.compile(r"@import|expression\(|\\", re.IGNORECASE)
_LENGTH = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]+)?)(?:px)?\s*")
_MOST_STYLE = 1_000_000  # characters of style kept for reading


class SvgReader:
    """Read a file piece by piece; afterwards `findings` says what is wrong, and `size` how large the picture is."""

    def __init__(self) -> None:
        self.size: tuple[int, int] = (0, 0)
        self._findings: list[str] = []
        self._damage: tuple[str, ...] = ()
        self._style: list[str] = []
        self._style_characters = 0
        self._style_depth = 0  # how many elements are open since a style began, itself included
        self._depth = 0
        self._dead = False
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.ProcessingInstructionHandler = self._instruction

    def feed(self, piece: bytes) -> None:
        """Read the next bytes of the file."""
        self._parse(piece, final=False)

    def damage(self) -> tuple[str, ...]:
        """Return why no browser shows the file, once all bytes were fed; a sentence without its subject."""
        self._parse(b"", final=True)
        return self._damage

    def findings(self) -> tuple[str, ...]:
        """Return what is wrong, once all bytes were fed; each a sentence without its subject."""
        self._parse(b"", final=True)
        self._check_style("".join(self._style))
        return tuple(dict.fromkeys(self._findings))

    def _parse(self, piece: bytes, *, final: bool) -> None:
        if self._dead:
            return
        try:
            self._parser.Parse(piece, final)
        except _StoppedError:
            self._dead = True
        except expat.ExpatError as error:
            self._dead = True
            self._damage = (f"is not well-formed XML (line {error.lineno})",)
            self._findings += self._damage

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        if self._depth == 0:
            if local != "svg":
                self._findings.append(f"begins with <{name}> where <svg> should be")
            self.size = _size(attributes)
        self._depth += 1
        if local == "style" or self._style_depth:
            self._style_depth += 1
        if local in _FORBIDDEN:
            self._findings.append(f"holds a <{name}>")
        for key, value in attributes.items():
            prefix, _, local_key = key.rpartition(":")
            self._check_attribute(local_key.lower(), value, may_be_style=not prefix)

    def _check_attribute(self, key: str, value: str, *, may_be_style: bool) -> None:
        if key.startswith("on"):
            self._findings.append(f"reacts to events ({key})")
        if "javascript:" in re.sub(r"[\s\x00-\x1f]", "", value).lower():
            self._findings.append(f"holds a script in {key}")
        elif key in _ADDRESSES and value and not (value.strip().startswith("#") or _DATA_PICTURE.match(value.strip())):
            self._findings.append(f"refers to something outside itself ({value.strip()[:60]})")
        elif key == "attributename" and re.match(r"href|src|on", value.rpartition(":")[2].strip().lower()):
            self._findings.append("changes an address or a reaction while it is shown")
        else:
            # Drawing programs keep file names with backslashes under prefixes of their own; style has no prefix.
            self._check_style(value, imports=may_be_style)

    def _check_style(self, style: str, *, imports: bool = True) -> None:
        if outside := _STYLE_ADDRESS.search(style):
            self._findings.append(f"refers to something outside itself ({outside[1].strip()})")
        if imports and _STYLE_IMPORT.search(style):
            self._findings.append("imports a style, or hides one behind a backslash")

    def _end(self, _name: str) -> None:
        self._depth -= 1
        self._style_depth = max(0, self._style_depth - 1)

    def _characters(self, text: str) -> None:
        if self._style_depth:
            self._style_characters += len(text)
            if self._style_characters > _MOST_STYLE:
                self._findings.append("holds a style of more than a million characters")
            else:
                self._style.append(text)

    def _entity(self, name: str, *_: object) -> None:
        self._findings.append(f"declares the entity {name}")
        # From here on nothing more is read: entities that refer to each other would unfold without end.
        raise _StoppedError

    def _instruction(self, target: str, data: str) -> None:
        if target.lower() == "xml-stylesheet":
            self._findings.append(f"refers to a style sheet ({data[:60]})")


class _StoppedError(Exception):
    """Ends the parsing of a file that has been refused."""


def _size(attributes: dict[str, str]) -> tuple[int, int]:
    """Width and height as they are written in pixels, else the last two numbers of the view box."""
    written = [_LENGTH.fullmatch(attributes.get(name, "")) for name in ("width", "height")]
    if written[0] and written[1]:
        return round(float(written[0][1])), round(float(written[1][1]))
    box = re.split(r"[\s,]+", attributes.get("viewBox", "").strip())
    numbers = [_LENGTH.fullmatch(part) for part in box[2:]] if len(box) == 4 else []
    return (
        (round(float(numbers[0][1])), round(float(numbers[1][1])))
        if len(numbers) == 2 and numbers[0] and numbers[1]
        else (0, 0)
    )
