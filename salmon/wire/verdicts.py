"""What was found out about the quality of participants, as it is kept until more answers come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from salmon.quality import Figures, Flag, Verdict
from salmon.wire.plain_json import decode_json, encode_json

#: Changes with what is measured and with the rules: what an earlier version found is found again.
RULES = 1


@dataclass(frozen=True)
class Judgement:
    """Verdicts by participant, as of the last answer that was seen and of so many decisions of the experimenter."""

    as_of: str
    decisions: int
    verdicts: Mapping[str, Verdict]

    def encode(self) -> str:
        """The JSON of `salmon:{E}:quality`."""
        found = {
            participant: {
                "figures": asdict(verdict.figures),
                "flags": [[flag.name, flag.reason, flag.excludes] for flag in verdict.flags],
            }
            for participant, verdict in self.verdicts.items()
        }
        return encode_json({"rules": RULES, "as_of": self.as_of, "decisions": self.decisions, "verdicts": found})

    @staticmethod
    def decode(text: str | None) -> Judgement | None:
        """From that JSON; None where there is none or it follows other rules."""
        content = decode_json(text) if text else {}
        if content.get("rules") != RULES:
            return None
        names = {field.name for field in fields(Figures)}
        return Judgement(
            content["as_of"],
            content["decisions"],
            {participant: _verdict(found, names) for participant, found in content["verdicts"].items()},
        )


def _verdict(found: Mapping[str, Any], names: set[str]) -> Verdict:
    figures = {name: value for name, value in found["figures"].items() if name in names}
    return Verdict(Figures(**figures), tuple(Flag(*flag) for flag in found["flags"]))
