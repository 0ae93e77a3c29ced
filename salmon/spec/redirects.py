"""Where participants go when they have finished: a web address with fields, such as https://lab.org/back?id={puid}."""

import re
from typing import Any

from salmon.spec.appearance import web_address
from salmon.spec.suggestions import did_you_mean, listed
from salmon.spec.values import Misfit, scalar_of

#: What may stand in braces: our participant code, the completion code, and what platforms send in the link.
FIELDS = (
    *("puid", "code", "id"),
    *("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"),
    *("participantId", "assignmentId", "projectId"),
    *("survey_code", "workerId", "hitId"),
)

_FIELD = re.compile(r"\{([A-Za-z_]{1,40})\}")
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\$\{.*?\}|%[A-Za-z_]{3,}%|<[A-Za-z_ -]+>|\[\[.*?\]\]")
_EXAMPLES = frozenset(
    {
        "CODE",
        "YOURCODE",
        "YOUR_CODE",
        "YOUR-CODE",
        "COMPLETION_CODE",
        "TODO",
        "XXX",
        "XXXX",
        "XXXXX",
        "XXXXXX",
        "XXXXXXXX",
    }
)


def redirect(value: Any) -> str:
    """An address template whose fields we know; a placeholder that nobody filled in is refused."""
    written = scalar_of(value, "a web address that begins with https://").text.strip()
    refuse_placeholder(written)
    fields = _FIELD.findall(written)
    bare = web_address(_FIELD.sub("x", written))
    for field in fields:
        if field not in FIELDS:
            raise Misfit(
                sentence=f"{{label}} has the field {{{field}}}, which nothing fills in.",
                hint=did_you_mean(field, FIELDS) or f"Known are {listed(FIELDS, 'and')}.",
            )
    if "{" in bare or "}" in bare:
        raise Misfit(sentence="{label} has a brace that belongs to no field.", hint="Write fields as {puid}.")
    return written


def completion_code(value: Any) -> str:
    """The code that a platform gave for a study, in the form that platforms use."""
    wanted = "a completion code of letters, digits, - and _"
    written = scalar_of(value, wanted).text.strip()
    refuse_placeholder(written)
    if written.upper() in _EXAMPLES:
        raise Misfit(sentence="{label} is still the example {found}.", hint="Copy the code from the platform.")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", written):
        raise Misfit(wanted)
    return written


def refuse_placeholder(written: str) -> None:
    """A Misfit where a text still holds {{%NAME%}}, ${name}, %NAME% or <name>."""
    if _PLACEHOLDER.search(written):
        raise Misfit(
            sentence="{label} still holds a placeholder: {found}.",
            hint="The platform fills placeholders into the link it shows, never into this file; write the real value.",
        )
