"""The recruitment tab of an experiment: links, return addresses, what to do on each platform, and one-time links.

`guide_of` and `complaints_about` are pure functions of the experiment's file and address. What is secret until the
answers are stored, such as the completion code, is shown here to those who may change the experiment.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment
from frontend.console.experiments import tryout_link
from frontend.context import Context, WithContext
from frontend.experiments import ServedExperiment
from frontend.html import plain
from frontend.participant.arrival import INVITED, MTURK_HOSTS, link_for
from frontend.participant.completion import completion_of
from frontend.schemas import Body
from frontend.store.participants import Participant
from salmon.spec import Spec

router = APIRouter(prefix="/api/experiments/{slug}")

#: One-time links made at once.
MOST_LINKS = 5000
#: Hosts that Prolific has left -> the one that it has now.
_OLD_HOSTS = {"app.prolific.co": "app.prolific.com", "www.prolific.co": "www.prolific.com"}
#: The parameters by which platforms tell their people apart.
_PERSONS = frozenset({"PROLIFIC_PID", "survey_code"})
_NEW_STUDY = "https://app.prolific.com/researcher/studies/new"
#: The ids of somebody who is not there, as each platform would send them.
_MADE_UP = {
    "prolific": {"PROLIFIC_PID": "5f0000000000000000000000", "STUDY_ID": "test-study", "SESSION_ID": "test-session"},
    "connect": {"participantId": "TESTPARTICIPANT", "assignmentId": "TESTASSIGNMENT", "projectId": "TESTPROJECT"},
    "sona": {"survey_code": "12345"},
    "mturk": {"workerId": "ATESTWORKER", "assignmentId": "TESTASSIGNMENT", "hitId": "TESTHIT"},
}


@dataclass(frozen=True)
class Guide:
    """What an experimenter does on a platform.

    `link` is what the platform gets, `create` an address at which the platform's form is filled in already, `back`
    where participants are sent in the end (with made-up ids), `code` the completion code, `steps` what to do, in order.
    """

    platform: str
    link: str
    create: str
    back: str
    code: str
    steps: tuple[str, ...]


class GuideReply(TypedDict):
    """The guide, with a try-out that arrives as from the platform."""

    platform: str
    link: str
    create: str
    back: str
    code: str
    steps: tuple[str, ...]
    test: str
    secure: bool
    open: bool
    invited_only: bool


class LinkBody(Body):
    """A link as it stands at the platform."""

    link: Annotated[str, Field(min_length=1, max_length=2000)]


@router.get("/recruitment")
async def read_guide(request: Request, experiment: EditableExperiment, context: WithContext) -> GuideReply:
    """Return what to do to recruit participants: links, return addresses and steps for the platform of the file.

    `test` is a try-out with made-up ids of the platform: it walks the whole way, and nothing is recorded.
    """
    spec, state = experiment.spec, experiment.state
    address = f"{context.address(request)}/e/{state.slug}/"
    tryout = tryout_link(request, context, experiment.id, state.slug)
    made_up = _MADE_UP.get(spec.recruitment.platform, {})
    guide = guide_of(spec, address, name=state.slug)
    return GuideReply(
        platform=guide.platform,
        link=guide.link,
        create=guide.create,
        back=guide.back,
        code=guide.code,
        steps=guide.steps,
        test=f"{tryout}&{urlencode(made_up)}" if made_up else tryout,
        secure=address.startswith("https://"),
        open=state.state == "open",
        invited_only=spec.recruitment.invited_only,
    )


@router.get("/recruitment/qr.svg", response_class=Response)
async def read_qr_code(request: Request, experiment: EditableExperiment, context: WithContext) -> Response:
    """Return the QR code of the experiment's address, for posters and slides."""
    # Loaded when somebody asks for a code.
    import segno

    drawn = io.BytesIO()
    address = f"{context.address(request)}/e/{experiment.state.slug}/"
    segno.make(address, error="m").save(drawn, kind="svg", scale=8, border=4, xmldecl=False, title=address)
    headers = {"Content-Disposition": f'inline; filename="{experiment.state.slug}-qr.svg"', "Cache-Control": "no-store"}
    return Response(drawn.getvalue(), media_type="image/svg+xml", headers=headers)


@router.get("/recruitment/invitations.csv", response_class=Response)
async def make_invitations(
    request: Request,
    experiment: EditableExperiment,
    context: WithContext,
    count: Annotated[int, Query(ge=1, le=MOST_LINKS)] = 100,
    first: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """Return links of which each stands for one person: whoever opens it again goes on, or sees the way out again."""
    address = f"{context.address(request)}/e/{experiment.state.slug}/"
    written = io.StringIO()
    table = csv.writer(written)
    table.writerow(["number", "link"])
    for number in range(first, first + count):
        invitation = context.signer.sign_invitation(experiment.id, number)
        table.writerow([number, f"{address}?{urlencode({INVITED: invitation})}"])
    headers = {
        "Content-Disposition": f'attachment; filename="{experiment.state.slug}-invitations.csv"',
        "Cache-Control": "no-store",
    }
    return Response(written.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


@router.post("/recruitment/check")
async def check_link(
    request: Request, body: LinkBody, experiment: EditableExperiment, context: WithContext
) -> list[str]:
    """Return what is wrong with a link that was given to a platform; nothing where it is right."""
    address = f"{context.address(request)}/e/{experiment.state.slug}/"
    return list(complaints_about(body.link, address, platform=experiment.spec.recruitment.platform))


def link_of(request: Request, context: Context, experiment: ServedExperiment) -> str:
    """Return the link that the platform of an experiment's file is given."""
    address = f"{context.address(request)}/e/{experiment.state.slug}/"
    return link_for(address, experiment.spec.recruitment.platform)


def guide_of(spec: Spec, address: str, *, name: str) -> Guide:
    """Return the guide of an experiment for the platform that its file names; `address` is that of its page."""
    recruitment = spec.recruitment
    platform, code = recruitment.platform, recruitment.completion_code or ""
    link = link_for(address, platform)
    ids = dict(_MADE_UP.get(platform, {}))
    person = Participant("test", puid=next(iter(ids.values()), "test"), source=platform, companions=ids)
    way = completion_of(recruitment, person)
    back = way.redirect or (way.form[0] if way.form else "")
    create = _prolific_form(spec, link, name=name, code=code) if platform == "prolific" else ""
    return Guide(platform, link, create, back, code, tuple(_STEPS[platform](spec, back, code)))


def complaints_about(link: str, address: str, *, platform: str) -> Iterator[str]:
    """Yield what is wrong with a link at a platform, one sentence after the other."""
    written, ours = urlsplit(link.strip()), urlsplit(address)
    if written.netloc in _OLD_HOSTS:
        yield f"{written.netloc} no longer works: Prolific is at {_OLD_HOSTS[written.netloc]}."
        return
    if not written.scheme or not written.netloc:
        yield "This is no web address: it begins with https:// and the name of a server."
        return
    if written.hostname in {"localhost", "127.0.0.1", "::1"}:
        yield f"{written.netloc} leads everybody to their own computer: participants need the server's public address."
    elif written.scheme == "http":
        yield "The link begins with http://, which platforms and browsers refuse: use https://."
    if written.netloc != ours.netloc:
        yield f"The link leads to {written.netloc}; this server is {ours.netloc}."
    if written.path.rstrip("/") != ours.path.rstrip("/"):
        yield f"The link leads to {written.path or '/'}; this experiment is at {ours.path}."
    yield from _complaints_about_parameters(written.query, platform)


def _complaints_about_parameters(query: str, platform: str) -> Iterator[str]:
    """Yield what is missing behind a link's address, what is not as the platform fills it in, and what is another's."""
    found, wanted = parse_qs(query, keep_blank_values=True), parse_qs(urlsplit(link_for("", platform)).query)
    for parameter, (placeholder, *_) in wanted.items():
        given = found.get(parameter, [""])[0]
        person = parameter in _PERSONS
        if parameter not in found:
            yield f"{parameter}={placeholder} is missing" + (", so nobody could be told apart." if person else ".")
        elif given != placeholder:
            same = (
                " Everybody would be the same person." if person and not any(mark in given for mark in "{}%$") else ""
            )
            yield f"{parameter}={given} is not what {platform.capitalize()} fills in: write {parameter}={placeholder}.{same}"
    for parameter in found.keys() - wanted.keys():
        if any(parameter in ids for name, ids in _MADE_UP.items() if name != platform):
            yield f"{parameter} belongs to another platform; the file says {platform}."


def _prolific_form(spec: Spec, link: str, *, name: str, code: str) -> str:
    """Return the address of Prolific's form for a new study, filled in."""
    values = {
        "name": plain(spec.html.title),
        "internal_name": name,
        "description": plain(spec.html.instructions),
        "external_study_url": link,
        "prolific_id_option": "url_parameters",
        "completion_option": "url",
        **({"completion_code": code} if code else {}),
    }
    return f"{_NEW_STUDY}?{urlencode(values)}"


def _link_steps(spec: Spec, back: str, code: str) -> Iterator[str]:
    if spec.recruitment.invited_only:
        yield "Make one-time links below and send each to one person; the experiment refuses everybody else."
    else:
        yield "Send the link, or show the QR code. Everybody who opens it takes part once in each browser."
    yield "To tell people apart, add ?puid= and a code of your own to the link, or make one-time links below."
    yield from _ending(back, code)


def _prolific_steps(spec: Spec, back: str, code: str) -> Iterator[str]:
    yield "Press the button below: it opens Prolific's form for a new study with title, link and completion code filled in."
    yield "Without it: as the study's URL paste the link above, and choose “I'll use URL parameters” for the Prolific IDs."
    yield from _needs_code(code, "Prolific")
    yield "Under “Study completion”, choose “I'll redirect them using a URL”."
    yield from _people(spec)
    yield from _ending(back, code)


def _connect_steps(spec: Spec, back: str, code: str) -> Iterator[str]:
    yield "Create a project and paste the link above. Connect adds participantId, assignmentId and projectId by itself."
    if not back:
        yield "To send participants back by themselves, write the project's id: recruitment: {connect: {project: …}}."
    yield from _people(spec)
    yield from _ending(back, code)


def _sona_steps(spec: Spec, back: str, code: str) -> Iterator[str]:
    yield "Create an online external study and paste the link above as its study URL; SONA fills in %SURVEY_CODE%."
    yield "SONA's codes differ from study to study, so nobody can be kept out of a second study by them."
    if spec.recruitment.sona is not None and spec.recruitment.sona.credit == "server":
        yield "This server asks SONA for the credit when somebody finishes; the page Payment says what became of it."
    yield from _people(spec)
    yield from _ending(back, code)


def _mturk_steps(spec: Spec, back: str, code: str) -> Iterator[str]:
    live, sandbox = MTURK_HOSTS
    yield "Create a task with an ExternalQuestion whose ExternalURL is the link above and whose FrameHeight is 0."
    yield "A preview shows three targets and records nothing; the task begins when it is accepted."
    yield f"The form is sent to {sandbox} unless the file says recruitment: {{mturk: {{host: live}}}} ({live})."
    yield from _people(spec)
    yield from _ending(back, code)


def _needs_code(code: str, where: str) -> Iterator[str]:
    if not code:
        yield f"Copy the completion code from {where} into the file: recruitment: {{completion_code: …}}."


def _people(spec: Spec) -> Iterator[str]:
    """Yield how many answers each participant gives, from which one plans places and pay."""
    if spec.html.max_queries > 0:
        yield f"Each participant gives {spec.html.max_queries} answers. Try the experiment out to see how long that takes, and set the pay by it."


def _ending(back: str, code: str) -> Iterator[str]:
    if back:
        yield "In the end a button leads participants back; it appears when all their answers are stored."
    elif code:
        yield "In the end the page shows the completion code, when all answers of the participant are stored."
    yield "Press “Test arrival” to walk the whole way with made-up ids; nothing is recorded."


_STEPS = {
    "link": _link_steps,
    "prolific": _prolific_steps,
    "connect": _connect_steps,
    "sona": _sona_steps,
    "mturk": _mturk_steps,
}
