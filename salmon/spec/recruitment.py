"""Where participants come from, and where they go when they have finished."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from salmon.spec.appearance import web_address
from salmon.spec.kinds import Count, Positive, one_of
from salmon.spec.part import Part
from salmon.spec.suggestions import did_you_mean, listed
from salmon.spec.values import Misfit, scalar_of, word

Platform = Literal["link", "prolific", "connect", "sona", "mturk"]
MturkHost = Literal["sandbox", "live"]

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


def redirect_template(value: Any) -> str:
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


def completion_code_text(value: Any) -> str:
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


class Sona(Part):
    """Credit at a SONA system, https://<school>.sona-systems.com."""

    school: Annotated[
        str,
        BeforeValidator(
            word(
                r"[a-z0-9-]{1,63}(\.sona-systems\.(com|net))?",
                "the school's name in its SONA address, such as psych-uni",
            )
        ),
    ]
    experiment_id: Positive
    credit_token: Annotated[
        str, BeforeValidator(word(r"[A-Za-z0-9-]{8,64}", "the credit token that SONA shows for the study"))
    ]


class Connect(Part):
    """A project at CloudResearch Connect."""

    project: Annotated[
        str, BeforeValidator(word(r"[A-Za-z0-9]{4,64}", "the project id in the address of the Connect project"))
    ]


class Mturk(Part):
    """Where the form of an external question is sent."""

    host: Annotated[MturkHost, one_of(MturkHost)] = "sandbox"


class Recruitment(Part):
    """Where participants come from and where they go."""

    platform: Annotated[Platform, one_of(Platform)] = "link"
    completion_code: Annotated[str, BeforeValidator(completion_code_text)] | None = None
    redirect: Annotated[str, BeforeValidator(redirect_template)] | None = None
    repeats: Count = 0  # how often the same person may come again
    sona: Sona | None = None
    connect: Connect | None = None
    mturk: Mturk | None = None
