"""What one participant did on the pages, and whether the experimenter counts them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from salmon.export.responses import moment
from salmon.export.table import Cell
from salmon.quality import Verdict

Values = Mapping[str, str]


@dataclass
class Conduct:
    """What the events tell of one participant."""

    skipped: int = 0
    blur_count: int = 0
    blur_ms: float = 0.0
    fullscreen_exits: int = 0
    load_failures: int = 0
    resumes: int = 0
    device: str = ""
    viewport: tuple[int, int] | None = None
    pixel_ratio: float | None = None
    _blurred_ms: float | None = None

    def note(self, entry: Values) -> None:
        """One more event, in order."""
        detail = entry.get("detail", "")
        match entry.get("event", ""):
            case "skip":
                self.skipped += 1
            case "blur":
                self.blur_count += 1
                self._blurred_ms = float(entry.get("client_ms", -1))
            case "focus":
                back_ms = float(entry.get("client_ms", -1))
                if self._blurred_ms is not None and back_ms >= self._blurred_ms >= 0:
                    self.blur_ms += back_ms - self._blurred_ms
                self._blurred_ms = None
            case "fullscreenexit":
                self.fullscreen_exits += 1
            case "load_failed":
                self.load_failures += 1
            case "resumed" | "came_back":
                self.resumes += 1
            case "device":
                self.device = detail
            case "opened":
                self._note_opening(detail)
            case _:
                pass

    def _note_opening(self, detail: str) -> None:
        """`1280x800 2`: the size of the page and its pixel ratio, as pages write it; anything else is passed over."""
        size, _, ratio = detail.partition(" ")
        width, _, height = size.partition("x")
        if self.viewport is None and width.isdecimal() and height.isdecimal():
            self.viewport = (int(width[:6]), int(height[:6]))
            try:
                self.pixel_ratio = float(ratio)
            except ValueError:
                self.pixel_ratio = None


@dataclass(frozen=True)
class Decision:
    """Whom to keep: the experimenter's word where there is one, otherwise the proposal."""

    verdict: Verdict | None
    manual: str
    note: str
    by: str
    decided_ms: int

    @staticmethod
    def of(values: Values, verdict: Verdict | None) -> Decision:
        """From the fields of a participant."""
        manual = values.get("keep", "")
        manual = manual if manual in {"keep", "exclude"} else ""
        decided_ms = int(values.get("keep_ms", 0))
        return Decision(verdict, manual, values.get("keep_note", ""), values.get("keep_by", ""), decided_ms)

    @property
    def keep(self) -> bool:
        """Whether the participant counts."""
        return self.manual == "keep" if self.manual else self.verdict is None or self.verdict.keep

    @property
    def reason(self) -> str:
        """Why not, in sentences; empty for those who are kept."""
        if self.keep:
            return ""
        if self.manual:
            return f"Excluded by hand: {self.note}" if self.note else "Excluded by hand."
        return self.verdict.exclusion if self.verdict else ""

    def cells(self) -> list[Cell]:
        """The last columns of participants and quality."""
        flags = self.verdict.flags if self.verdict else ()
        return [
            " ".join(flag.name for flag in flags),
            " ".join(flag.reason for flag in flags),
            self.verdict is None or self.verdict.keep,
            self.manual,
            self.keep,
            self.note,
            self.by,
            moment_of(str(self.decided_ms)),
        ]


def moment_of(milliseconds: str | None) -> str | None:
    """A moment from a field in Unix milliseconds; None where it is missing or 0."""
    return moment(int(milliseconds)) if milliseconds and milliseconds.isdecimal() and int(milliseconds) else None
