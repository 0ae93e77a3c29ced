"""What an experimenter is told to do on each platform, and what is wrong with a link."""

from urllib.parse import parse_qs, urlsplit

import pytest

from frontend.console.recruitment import complaints_about, guide_of
from frontend.participant.arrival import link_for
from salmon.spec import Spec, parse_spec

ADDRESS = "https://lab.example.org/e/eggs/"


def spec_of(recruitment: str) -> Spec:
    return parse_spec(
        f"targets: [a, b, c]\nsamplers: {{Random: {{}}}}\nhtml: {{title: <b>Eggs</b>}}\nrecruitment: {{{recruitment}}}\n"
    ).spec


def test_prolifics_form_comes_filled_in() -> None:
    guide = guide_of(spec_of("platform: prolific, completion_code: C0DE7"), ADDRESS, name="eggs")
    assert (
        guide.link
        == f"{ADDRESS}?PROLIFIC_PID={{{{%PROLIFIC_PID%}}}}&STUDY_ID={{{{%STUDY_ID%}}}}&SESSION_ID={{{{%SESSION_ID%}}}}"
    )
    assert guide.back == "https://app.prolific.com/submissions/complete?cc=C0DE7"
    form = urlsplit(guide.create)
    assert (form.netloc, form.path) == ("app.prolific.com", "/researcher/studies/new")
    filled = {name: value for name, (value,) in parse_qs(form.query).items()}
    assert filled["external_study_url"] == guide.link
    assert (filled["name"], filled["internal_name"], filled["completion_code"]) == ("Eggs", "eggs", "C0DE7")
    assert (filled["prolific_id_option"], filled["completion_option"]) == ("url_parameters", "url")


@pytest.mark.parametrize(
    ("recruitment", "back", "step"),
    [
        ("platform: connect, connect: {project: ab12cd}", "https://connect.cloudresearch.com/participant/project/ab12cd/complete", "Connect adds participantId"),
        ("platform: connect, completion_code: C0DE7", "", "To send participants back by themselves"),
        (
            "platform: sona, sona: {school: psych-uni, experiment_id: 12, credit_token: abcdefgh1234}",
            "https://psych-uni.sona-systems.com/webstudy_credit.aspx?experiment_id=12&credit_token=abcdefgh1234&survey_code=12345",
            "codes differ from study to study",
        ),
        ("platform: mturk", "https://workersandbox.mturk.com/mturk/externalSubmit", "ExternalQuestion"),
        ("platform: prolific", "", "Copy the completion code from Prolific"),
        ("platform: link", "", "Send the link"),
        ("invited_only: true", "", "refuses everybody else"),
    ],
)  # fmt: skip
def test_each_platform_has_its_steps_and_way_back(recruitment: str, back: str, step: str) -> None:
    guide = guide_of(spec_of(recruitment), ADDRESS, name="eggs")
    assert guide.back == back
    assert any(step in each for each in guide.steps)
    assert guide.steps[-1].startswith("Press “Test arrival”")


@pytest.mark.parametrize(
    ("link", "platform", "sentence"),
    [
        (link_for(ADDRESS, "prolific"), "prolific", ""),
        (link_for(ADDRESS, "sona"), "sona", ""),
        (ADDRESS, "connect", ""),
        (ADDRESS, "prolific", "PROLIFIC_PID={{%PROLIFIC_PID%}} is missing"),
        (f"{ADDRESS}?survey_code=%7BCODE%7D", "sona", "survey_code={CODE} is not what Sona fills in"),
        ("https://app.prolific.co/studies/1", "prolific", "Prolific is at app.prolific.com"),
        (link_for(ADDRESS.replace("https", "http"), "prolific"), "prolific", "use https://"),
        (link_for("https://other.example.org/e/eggs/", "prolific"), "prolific", "leads to other.example.org"),
        (link_for("https://lab.example.org/e/eg/", "prolific"), "prolific", "leads to /e/eg/"),
        (f"{ADDRESS}?PROLIFIC_PID=abc&STUDY_ID=x&SESSION_ID=y", "prolific", "Everybody would be the same person."),
        (link_for("http://localhost:8421/e/eggs/", "prolific"), "prolific", "to their own computer"),
        (f"{ADDRESS}?workerId=1", "connect", "workerId belongs to another platform"),
        ("eggs", "link", "no web address"),
    ],
)
def test_a_link_that_cannot_work_is_explained(link: str, platform: str, sentence: str) -> None:
    complaints = list(complaints_about(link, ADDRESS, platform=platform))
    assert complaints == [] if not sentence else any(sentence in complaint for complaint in complaints), complaints
