"""How participants leave: the completion code, the address to return to, the form of Mechanical Turk.

Pure functions of the recruitment settings and of what the store knows of the participant. Everything here is secret
until the answers are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from frontend.participant.arrival import MTURK_HOSTS
from salmon.spec.schema import Recruitment

#: Prefix of the fields in which a participant's link parameters are kept.
ARRIVED = "arrived:"
_FIELD = re.compile(r"\{([A-Za-z_]{1,40})\}")
#: What a field of a redirect is called here, where the platform's name is the participant's own id.
_OWN_NAMES = ("puid", "id", "PROLIFIC_PID", "participantId", "survey_code", "workerId")


@dataclass(frozen=True)
class Departure:
    """The way out. `form` goes to Mechanical Turk by POST: its address and its fields."""

    code: str | None = None
    redirect: str | None = None
    form: tuple[str, dict[str, str]] | None = None


def departure_of(recruitment: Recruitment, values: Mapping[str, str]) -> Departure:
    """The way out that the experiment describes, filled in for one participant."""
    code = recruitment.completion_code
    return Departure(code, _redirect(recruitment, values), _mturk_form(recruitment, values))


def _redirect(recruitment: Recruitment, values: Mapping[str, str]) -> str | None:
    puid, code = values.get("puid", ""), recruitment.completion_code
    if recruitment.redirect is not None:
        known = dict.fromkeys(_OWN_NAMES, puid) | {"code": code or ""}

        def filled(match: re.Match[str]) -> str:
            return quote(known.get(match[1], values.get(ARRIVED + match[1], "")), safe="")

        return _FIELD.sub(filled, recruitment.redirect)
    if recruitment.platform == "prolific" and code:
        return f"https://app.prolific.com/submissions/complete?{urlencode({'cc': code})}"
    if recruitment.platform == "connect" and recruitment.connect is not None:
        return f"https://connect.cloudresearch.com/participant/project/{recruitment.connect.project}/complete"
    if recruitment.platform == "sona" and recruitment.sona is not None:
        sona = recruitment.sona
        host = sona.school if "." in sona.school else f"{sona.school}.sona-systems.com"
        credit = {"experiment_id": sona.experiment_id, "credit_token": sona.credit_token, "survey_code": puid}
        return f"https://{host}/webstudy_credit.aspx?{urlencode(credit)}"
    return None


def _mturk_form(recruitment: Recruitment, values: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """Mechanical Turk wants the assignment and at least one more field; where it did not say who asks, the spec does."""
    assignment = values.get(f"{ARRIVED}assignmentId")
    if values.get("source") != "mturk" or not assignment:
        return None
    live, sandbox = MTURK_HOSTS
    configured = live if recruitment.mturk is not None and recruitment.mturk.host == "live" else sandbox
    host = values.get(f"{ARRIVED}turkSubmitTo", configured)
    fields = {"assignmentId": assignment, "answers": values.get("answers", "0")}
    if recruitment.completion_code:
        fields["code"] = recruitment.completion_code
    return f"{host}/mturk/externalSubmit", fields
