"""The arrival of a participant: from the parameters of a link to one identity, and whether they may go on.

Pure functions. A link that cannot be right is refused with a sentence that says why.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from frontend.errors import AgainError, BadRequestError, BegunError, GapError, LinkError
from frontend.prolific.signed_links import TOKEN
from frontend.store.participants import Participant, Source
from frontend.store.statuses import FINISHED, UNDER_WAY, Status
from salmon.spec.schema import Resume, ResumePolicy

WayBack = Literal["continue", "review", "restart"]
#: What an arrival of somebody who was here before is: the same visit, one that begins anew, or taking part once more.
Visit = Literal["same", "afresh", "once_more"]
#: The parameter in which a platform names the submission; the others have one submission for each person.
_SUBMISSION: dict[str, str] = {"prolific": "SESSION_ID", "connect": "assignmentId", "mturk": "assignmentId"}

#: The parameter of a one-time link; its value is signed, and stands for one person.
INVITED = "i"
#: Parameter -> the platform that sends it, in the order in which they are believed. An invitation comes first: it is
#: one participant, whatever is added to its link.
_IDENTIFIERS: dict[str, Source] = {
    INVITED: "link",
    "PROLIFIC_PID": "prolific",
    "participantId": "connect",
    "survey_code": "sona",
    "workerId": "mturk",
    "puid": "link",
}
#: What else platforms send with it, and what is kept to send the participant back.
_COMPANIONS = ("STUDY_ID", "SESSION_ID", "assignmentId", "projectId", "hitId", "turkSubmitTo")
_LONGEST = 128
_LONGEST_MTURK = 255
_ALLOWED = re.compile(r"[A-Za-z0-9._:@+-]+")
_SURVEY_CODE = re.compile(r"[1-9][0-9]{1,6}")
_PLACEHOLDER = re.compile(r"[{}%$]")
#: The only places where Mechanical Turk's form may be sent: any other would be an open redirect.
MTURK_HOSTS = ("https://www.mturk.com", "https://workersandbox.mturk.com")
_PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
#: A study that was left for longer than this is not resumed, unless it allows longer gaps itself.
LONGEST_GAP = timedelta(hours=24)


#: What has to stand behind the address in the link that a platform is given; each fills in its own placeholders, and
#: those that are not here add their parameters by themselves.
_PLACEHOLDERS: dict[str, str] = {
    "prolific": "?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}",
    "sona": "?survey_code=%SURVEY_CODE%",
}


def link_for(address: str, platform: str) -> str:
    """Return the link to give to a platform: participants cannot begin without the ids that it fills in."""
    return address + _PLACEHOLDERS.get(platform, "")


@dataclass(frozen=True)
class Arrival:
    """Who a link says is here: `source` is the platform, `puid` its id of the person.

    `invited` says that the id is that of a one-time link, and `signature` is Prolific's; neither is checked yet.
    """

    source: Source
    puid: str
    companions: dict[str, str] = field(default_factory=dict)
    invited: bool = False
    signature: str = ""

    @property
    def signed(self) -> dict[str, str]:
        """The signature and the ids that it has to be about: those that count here, whatever else the link says."""
        ids = {"PROLIFIC_PID": self.puid} if self.source == "prolific" else {}
        return {**self.companions, **ids, TOKEN: self.signature}


def is_preview(parameters: Mapping[str, str]) -> bool:
    """Return whether somebody only looks at a task on Mechanical Turk, and has not accepted it."""
    return parameters.get("assignmentId") == _PREVIEW


def read_arrival(parameters: Mapping[str, str], *, fresh: str, platform: str = "link") -> Arrival:
    """Return the arrival that a link's parameters describe; an open link without any
    makes a participant called `fresh`.

    A platform that forgot to fill in its placeholder would make one participant of everybody: such a link is refused.
    """
    if is_preview(parameters):
        raise BadRequestError("This is a preview: accept the task to begin.", where="assignmentId")
    companions = {name: _read_id(parameters, name) for name in _COMPANIONS if parameters.get(name, "").strip()}
    signature = parameters.get(TOKEN, "").strip()
    for name, source in _IDENTIFIERS.items():
        if parameters.get(name, "").strip() or (name == INVITED and name in parameters):
            return Arrival(source, _read_id(parameters, name), companions, name == INVITED, signature)
    if platform == "link":
        return Arrival("link", fresh, companions, signature=signature)
    wanted = next(name for name, source in _IDENTIFIERS.items() if source == platform)
    raise LinkError(
        f"The link does not say who you are: it has no {wanted}.",
        fault="missing",
        hint="Open it from the platform again. To look at the study yourself, add ?puid=test to its address.",
        where=wanted,
    )


def visit_of(
    arrival: Arrival, participant: Participant, *, repeats: int, policy: ResumePolicy, same_tab: bool
) -> Visit:
    """Return what the arrival of somebody known is; AgainError where they have taken part as often as they may.

    A platform gives somebody who takes a study up again a new submission: before the trials, that begins anew. Where
    there are no submissions, opening the link anew after the end is taking part once more, as long as `repeats` allows
    it.
    """
    allowed = participant.round < repeats and participant.status in FINISHED
    if not is_new_submission(arrival, participant):
        once_more = allowed and not same_tab and arrival.source not in _SUBMISSION
        return "once_more" if once_more else "same"
    if allowed:
        return "once_more"
    barred = participant.status in {Status.SCREENED_OUT, Status.FAILED_CHECKS}
    past_training = participant.answers > 0 or participant.status in UNDER_WAY
    if not barred and (not past_training or (policy == "restart" and participant.status not in FINISHED)):
        return "afresh"
    raise AgainError(
        "You have already taken part in this study.",
        hint="Your answers are kept. If this is a mistake, please contact the people who run the study.",
    )


def is_new_submission(arrival: Arrival, participant: Participant) -> bool:
    """Return whether the link names another submission than the one that a participant came with."""
    name = _SUBMISSION.get(arrival.source, "")
    now, before = arrival.companions.get(name, ""), participant.companions.get(name, "")
    return bool(now and before and now != before)


def mark_of(browser: str) -> str:
    """Return what is stored of the secret of a browser: enough to know it again, not enough to be it."""
    return hashlib.sha256(browser.encode()).hexdigest()[:16] if browser else ""


def way_back(resume: Resume, participant: Participant, *, same_tab: bool, browser: str, now_ms: int) -> WayBack:
    """Return how somebody goes on who was here before; BegunError or GapError where the experiment does not let them.

    A page that is reloaded has kept its session, and always goes on: the policy is about coming back by the link. Ids
    in links can be guessed or seen; with `same_browser` only the browser that began may go on, and see the way out
    again.
    """
    elsewhere = resume.policy == "same_browser" and participant.browser not in {"", mark_of(browser)}
    if elsewhere and not same_tab and (participant.has_begun or participant.status in FINISHED):
        raise BegunError(
            "This study was begun in another browser.",
            hint="Go on in the browser where you began; your answers are kept.",
        )
    if participant.status in FINISHED:
        return "continue"  # the way out is shown as often as they come
    begun = participant.status in UNDER_WAY or participant.turns > 0
    if begun and not same_tab and resume.policy == "block":
        raise BegunError(
            "You have begun this study already, and it cannot be continued.",
            hint="Please contact the people who sent you the link; your answers are kept.",
        )
    if begun and not same_tab and resume.policy == "restart":
        return "restart"
    gap = timedelta(milliseconds=now_ms - max(participant.first_ms, participant.seen_ms, participant.last_ms))
    if begun and gap > max(LONGEST_GAP, resume.max_gap):
        raise GapError(
            "You began this study too long ago to go on.",
            hint="Please contact the people who sent you the link; your answers are kept.",
        )
    return "review" if gap > resume.max_gap else "continue"


def _read_id(parameters: Mapping[str, str], name: str) -> str:
    value = parameters[name].strip()
    if _PLACEHOLDER.search(value) or value == name:
        raise LinkError(
            f"The link says {name}={value[:_LONGEST]}: the platform has not filled in who you are.",
            fault="unfilled",
            hint="Please tell the people who run this study; they can see how to set the link on its recruitment page.",
            where=name,
        )
    if name == "turkSubmitTo":
        if value.rstrip("/") not in MTURK_HOSTS:
            raise LinkError(
                "The link would send your work to an address that is not Mechanical Turk's.",
                fault="wrong",
                hint="Open the task from Mechanical Turk again.",
                where=name,
            )
        return value.rstrip("/")
    longest = _LONGEST_MTURK if name in {"workerId", "assignmentId", "hitId"} else _LONGEST
    fits = _SURVEY_CODE.fullmatch(value) if name == "survey_code" else _ALLOWED.fullmatch(value)
    if len(value) > longest or not fits:
        raise LinkError(
            f"The {name} in this link is not an id: it has characters or a length that ids do not have.",
            fault="wrong",
            hint="Open the link from the platform again, without changing it.",
            where=name,
        )
    return value
