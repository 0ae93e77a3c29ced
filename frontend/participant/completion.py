"""The way out of a participant: the completion code, the address to return to, the form of Mechanical Turk.

Pure functions of the recruitment settings and of the participant. All of it is secret until the answers are stored.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from frontend.participant.arrival import MTURK_HOSTS
from frontend.schemas import Json
from frontend.sona import host_of
from frontend.store.participants import Participant
from frontend.store.statuses import Status
from salmon.spec.schema import Recruitment

_FIELD = re.compile(r"\{([A-Za-z_]{1,40})\}")
#: Fields of a redirect that stand for the participant's own id, whatever their platform calls it.
_OWN_NAMES = ("puid", "id", "PROLIFIC_PID", "participantId", "survey_code", "workerId")


@dataclass(frozen=True)
class Completion:
    """The way out. `form` goes to Mechanical Turk by POST: its address and its fields."""

    code: str | None = None
    redirect: str | None = None
    form: tuple[str, dict[str, str]] | None = None


def completion_of(recruitment: Recruitment, participant: Participant) -> Completion:
    """Return the way out that the experiment describes, filled in for one participant."""
    if participant.status == Status.FAILED_CHECKS:
        return _screened_out(recruitment, participant)
    return Completion(
        recruitment.completion_code, _redirect(recruitment, participant), _mturk_form(recruitment, participant)
    )


def screen_out(recruitment: Recruitment, participant: Participant) -> Json:
    """Return what the page of somebody who failed the checks shows in the end."""
    completion = completion_of(recruitment, participant)
    return {
        "stored": participant.answers,
        "complete": True,
        "out": participant.status,
        "code": completion.code,
        "redirect": completion.redirect,
        "form": completion.form,
    }


def _screened_out(recruitment: Recruitment, participant: Participant) -> Completion:
    """Return the way out of somebody who failed the checks: only where it tells the
    platform so, by a code of its own.
    """
    code = recruitment.screen_out_code
    if code is None:
        return Completion()
    own = recruitment.model_copy(update={"completion_code": code})
    tells = "{code}" in recruitment.redirect if recruitment.redirect else recruitment.platform == "prolific"
    return Completion(code, _redirect(own, participant) if tells else None, _mturk_form(own, participant))


def _redirect(recruitment: Recruitment, participant: Participant) -> str | None:
    puid, code = participant.puid, recruitment.completion_code
    if recruitment.redirect is not None:
        known = dict.fromkeys(_OWN_NAMES, puid) | {"code": code or ""}

        def fill_in(match: re.Match[str]) -> str:
            return quote(known.get(match[1], participant.companions.get(match[1], "")), safe="")

        return _FIELD.sub(fill_in, recruitment.redirect)
    if recruitment.platform == "prolific" and code:
        return f"https://app.prolific.com/submissions/complete?{urlencode({'cc': code})}"
    if recruitment.platform == "connect" and recruitment.connect is not None:
        return f"https://connect.cloudresearch.com/participant/project/{recruitment.connect.project}/complete"
    if recruitment.platform == "sona" and recruitment.sona is not None:
        sona = recruitment.sona
        if participant.credit == "granted":
            return None
        credit = {"experiment_id": sona.experiment_id, "credit_token": sona.credit_token, "survey_code": puid}
        return f"https://{host_of(sona)}/webstudy_credit.aspx?{urlencode(credit)}"
    return None


def _mturk_form(recruitment: Recruitment, participant: Participant) -> tuple[str, dict[str, str]] | None:
    """Return the form, with the assignment and one more field at least; None without an assignment.

    Where the link did not say to which of its hosts the form goes, the spec does.
    """
    assignment = participant.companions.get("assignmentId")
    if participant.source != "mturk" or not assignment:
        return None
    live, sandbox = MTURK_HOSTS
    configured = live if recruitment.mturk is not None and recruitment.mturk.host == "live" else sandbox
    host = participant.companions.get("turkSubmitTo", configured)
    fields = {"assignmentId": assignment, "answers": str(participant.answers)}
    if recruitment.completion_code:
        fields["code"] = recruitment.completion_code
    return f"{host}/mturk/externalSubmit", fields
