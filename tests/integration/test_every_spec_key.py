"""Every key of an experiment's file has an effect: changing it changes what a participant,
the backend or the console gets.
"""

import random
import re
import secrets
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import httpx
import pytest
import yaml

from backend.service import Service
from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.store import Store
from salmon.samplers.passive import PASSIVE
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.spec import Spec, check, parse_spec
from salmon.spec.consistency import UNBUILT
from salmon.spec.kinds import Part
from salmon.spec.sampler_arguments import argument_names, has_effect
from salmon.spec.schema import SamplerSpec
from salmon.spec.values import FrozenMap
from tests.archives import picture, write_zip
from tests.living import absorbed, run_until, started
from tests.studies import Study, study

TARGETS = ["apple", "<i>pear</i>", "fig", "plum", "kiwi", "lime"]
BASE: dict[str, Any] = {
    "targets": TARGETS,
    "html": {"max_queries": 4, "title": "Fruits", "instructions": "Which?", "debrief": "Bye."},
    "samplers": {"one": {"class": "Random"}, "two": {"class": "Validation", "queries": [[0, 1, 2], [3, 4, 5]]}},
    "sampling": {"probs": {"one": 50, "two": 50}},
    "seed": 1,
}
QUESTION = {"text": "Which do you choose?", "options": ["near", "far"], "answer": "near"}
MTURK = {"assignmentId": "A" * 30, "workerId": "W" * 14, "hitId": "H" * 30}

_SCREENING = {"checks": {"catch": "50%", "on_failure": "screen_out", "tolerate": 0}, "seed": 4}

#: Key -> (what is written beside it, one value, another value); what is written is merged into BASE.
CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "targets": ({}, TARGETS, [*TARGETS[:-1], "melon"]),
    "html.title": ({}, "Fruits", "Colours"),
    "html.instructions": ({}, "Which?", "Who?"),
    "html.debrief": ({}, "Bye.", "Thanks."),
    "html.max_queries": ({}, 4, 3),
    "html.skip_button": ({}, False, True),
    "html.arrow_keys": ({}, True, False),
    "html.css": ({}, "", "p {color: red}"),
    "html.js": ({}, "", "window.x = 1"),
    "html.element_top": ({}, "", "<b>top</b>"),
    "html.element_middle": ({}, "", "<b>middle</b>"),
    "html.element_bottom": ({}, "", "<b>bottom</b>"),
    "html.element_standalone": ({}, "", "<b>alone</b>"),
    "sampling.probs": ({}, {"one": 50, "two": 50}, {"one": 0, "two": 100}),
    "sampling.samplers_per_user": ({}, 0, 1),
    "sampling.race": ({}, "0%", "50%"),
    "sampling.details{}.sampler": ({}, None, None),
    "sampling.details{}.query": ({}, None, None),
    "page.language": ({}, "en", "de"),
    "page.background": ({}, "white", "black"),
    "page.stimulus_size": ({}, "fill", "100px"),
    "page.keys": ({}, ["ArrowLeft", "ArrowRight"], ["f", "j"]),
    "page.fixation_ms": ({}, 0, 300),
    "page.blank_ms": ({}, 200, 0),
    "page.min_rt_ms": ({}, 200, 300),
    "page.warn_rt_ms": ({}, None, 900),
    "page.max_trial_ms": ({}, None, 5000),
    "page.enlarge": ({}, False, True),
    "page.fullscreen": ({}, "optional", "off"),
    "page.devices": ({}, ["desktop", "mobile"], ["desktop"]),
    "page.min_viewport": ({}, None, [800, 600]),
    "page.strings": ({}, {}, {"begin": "Off we go"}),
    "page.alt": ({}, {}, {"<i>pear</i>": "a green pear"}),
    "page.trusted": ({"targets": ["<b onclick='x()'>a</b>", *TARGETS[1:]]}, False, True),
    "consent.text": ({"consent": {"text": "May we?"}}, "May we?", "Do you agree?"),
    "consent.decline_url": ({"consent": {"text": "May we?"}}, None, "https://example.org/declined"),
    "instructions[].text": ({}, None, None),
    "groups{}.question": ({}, None, None),
    "groups{}.instructions[].text": ({}, None, None),
    "groups{}.samplers": ({}, None, None),
    "groups{}.targets": ({}, None, None),
    "practice.queries": ({"practice": {"queries": [[0, 1, 2, 1]]}}, [[0, 1, 2, 1]], [[0, 1, 2, 2]]),
    "practice.feedback": ({"practice": {"queries": [[0, 1, 2, 1]]}}, True, False),
    "comprehension.questions[].text": ({}, None, None),
    "comprehension.questions[].options": ({}, None, None),
    "comprehension.questions[].answer": ({}, None, None),
    "comprehension.attempts": ({"comprehension": {"questions": [QUESTION]}}, 2, 1),
    "questions[].name": ({}, None, None),
    "questions[].text": ({}, None, None),
    "questions[].type": ({}, None, None),
    "questions[].options": ({}, None, None),
    "questions[].points": ({}, None, None),
    "questions[].required": ({}, None, None),
    "recruitment.platform": ({}, "link", "prolific"),
    "recruitment.completion_code": ({}, None, "CODE77"),
    "recruitment.redirect": ({}, None, "https://example.org/?p={puid}"),
    "recruitment.sona.school": ({}, None, None),
    "recruitment.sona.experiment_id": ({}, None, None),
    "recruitment.sona.credit_token": ({}, None, None),
    "recruitment.connect.project": ({"recruitment": {"platform": "connect"}}, "abcd1234", "efgh5678"),
    "recruitment.mturk.host": ({"recruitment": {"platform": "mturk"}}, "sandbox", "live"),
    "recruitment.invited_only": ({}, False, True),
    "recruitment.unsent": ({"html": {"max_queries": 2}}, "wait", "release"),
    "security.accept_unsigned_answers": ({}, False, True),
    "security.compat": ({"consent": {"text": "May we?"}}, None, True),
    "security.origins": ({}, [], ["https://lab.example.org"]),
    "resume.policy": ({}, "continue", "block"),
    "resume.max_gap": ({}, "2h", "10m"),
    "recruitment.screen_out_code": (_SCREENING, None, "OUT77"),
    "checks.catch": ({}, "0%", "50%"),
    "checks.shared": ({}, 0, 2),
    "checks.on_failure": ({"checks": {"catch": "50%", "tolerate": 0}, "seed": 4}, "flag", "screen_out"),
    "checks.tolerate": ({"checks": {"catch": "50%", "on_failure": "screen_out"}, "seed": 4}, 0, 4),
    "checks.obvious": ({"checks": {"catch": "50%"}}, [[0, 1, 2]], [[3, 4, 5]]),
    "seed": ({}, 1, 2),
}
_SONA = {"school": "psych-uni", "experiment_id": 12, "credit_token": "abcdefgh1234"}
_FORM = {"name": "age", "text": "How old?", "type": "choice", "options": ["a", "b"], "required": False}
#: Keys inside lists and mappings: (first content of the part, second content).
WHOLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sampling.details{}.sampler": (
        {"sampling": {"details": {1: {"sampler": "one"}, 2: {"sampler": "one"}}}},
        {"sampling": {"details": {1: {"sampler": "two"}, 2: {"sampler": "two"}}}},
    ),
    "sampling.details{}.query": (
        {"sampling": {"details": {1: {"sampler": "one", "query": [0, 1, 2]}}}},
        {"sampling": {"details": {1: {"sampler": "one", "query": [5, 4, 3]}}}},
    ),
    "instructions[].text": ({"instructions": [{"text": "Look."}]}, {"instructions": [{"text": "See."}]}),
    "comprehension.questions[].text": (
        {"comprehension": {"questions": [QUESTION]}},
        {"comprehension": {"questions": [QUESTION | {"text": "What?"}]}},
    ),
    "comprehension.questions[].options": (
        {"comprehension": {"questions": [QUESTION]}},
        {"comprehension": {"questions": [QUESTION | {"options": ["near", "neither"]}]}},
    ),
    "comprehension.questions[].answer": (
        {"comprehension": {"questions": [QUESTION]}},
        {"comprehension": {"questions": [QUESTION | {"answer": "far"}]}},
    ),
    **{
        f"questions[].{key}": ({"questions": [_FORM]}, {"questions": [_FORM | change]})
        for key, change in {
            "name": {"name": "years"},
            "text": {"text": "Your age?"},
            "type": {"type": "text", "options": []},
            "options": {"options": ["a", "c"]},
            "points": {"type": "likert", "points": 5},
            "required": {"required": True},
        }.items()
    },
    **{
        f"groups{{}}.{key}": ({"groups": {"a": {}, "b": {}}}, {"groups": {"a": change, "b": change}})
        for key, change in {
            "question": {"question": "Which is more alike in COLOUR?"},
            "instructions[].text": {"instructions": [{"text": "Look at the colour."}]},
            "samplers": {"samplers": ["two"]},
        }.items()
    },
    "groups{}.targets": (
        {"groups": {name: {"samplers": ["one"]} for name in "ab"}},
        {"groups": {name: {"samplers": ["one"], "targets": TARGETS[:3]} for name in "ab"}},
    ),
    **{
        f"recruitment.sona.{key}": (
            {"recruitment": {"platform": "sona", "sona": _SONA}},
            {"recruitment": {"platform": "sona", "sona": _SONA | {key: value}}},
        )
        for key, value in {"school": "other-uni", "experiment_id": 13, "credit_token": "zzzzzzzz9999"}.items()
    },
}
#: Shown elsewhere: (key, the test that shows it).
ELSEWHERE = {
    "checks.repeat": "a repeat needs ten trials before it: tests/integration/test_checks.py",
    **{
        f"recruitment.prolific.{key}": "the study that is made at Prolific: tests/integration/prolific"
        for key in (
            "minutes",
            "places",
            "screen_out_places",
            "spend_at_most",
            "not_from",
        )
    },
    "recruitment.sona.credit": "this server asks SONA: tests/integration/test_sona.py",
    "recruitment.prolific.signed_links": "a link that is not signed is refused: tests/integration/prolific/test_signed_links.py",
    "groups{}.instructions[].image": "like that of the instructions, which is a picture of a ZIP",
    "instructions[].image": "a picture needs a ZIP: test_a_picture_of_the_instructions_is_sent_to_the_page",
    "sampling.common": "an argument of samplers: test_every_argument_of_a_sampler_changes_the_sampler",
    "samplers{}.sampler_class": "the same",
    "samplers{}.name": "the key itself",
    "samplers{}.arguments": "test_every_argument_of_a_sampler_changes_the_sampler",
    "privacy.keep_ids": "a removal needs days: tests/integration/test_retention.py",
    "privacy.keep_answers": "the same",
    "privacy.network_hint": "the experimenter sees it: tests/integration/test_shared_browsers.py",
    "stopping.answers": "tests/integration/test_lifecycle.py",
    "stopping.participants": "the same",
    "stopping.at": "the same",
    "stopping.accuracy_gain_below": "tests/crash/test_closing_by_itself.py",
    "stopping.per": "tests/unit/test_learning_curve.py",
    "stopping.errors_above": "tests/integration/test_lifecycle.py",
    "notify.email": "tests/integration/test_notifications.py",
    "notify.webhook": "the same",
    "notify.stalled_after": "the same",
    "groups{}.participants": "the same",
    "recruitment.opens_at": "the same",
    "recruitment.repeats": "the same",
    "resume.abandoned_after": "the same",
    "payment.currency": "participants see nothing of it: tests/integration/test_payment.py",
    "payment.reward": "the same",
    "payment.screened_out": "the same",
    "payment.bonus[].amount": "tests/unit/frontend/console/test_payment.py",
    "payment.bonus[].answers": "the same",
    "payment.bonus[].catch_accuracy": "the same",
    "payment.bonus[].for_each_answer_above": "the same",
    "payment.bonus[].at_most": "the same",
    "samplers{}.test": "test_answers_of_a_test_sampler_are_never_fitted",
}


def leaves(kind: Any = Spec, path: str = "") -> Iterator[str]:
    """Every key of the schema, `[]` in lists and `{}` in mappings."""
    while get_origin(kind) is Annotated or get_origin(kind) in {types.UnionType, Union}:
        kind = next(argument for argument in get_args(kind) if argument is not type(None))
    if isinstance(kind, type) and issubclass(kind, Part):
        for name, field in kind.model_fields.items():
            yield from leaves(field.annotation, f"{path}.{name}" if path else name)
        return
    inner = [argument for argument in get_args(kind) if isinstance(argument, type) and issubclass(argument, Part)]
    if inner and get_origin(kind) in {tuple, FrozenMap}:
        yield from leaves(inner[0], path + ("[]" if get_origin(kind) is tuple else "{}"))
    else:
        yield path


def test_every_key_of_the_schema_is_shown_to_have_an_effect_or_is_refused() -> None:
    refused = {".".join(path) for path in UNBUILT}
    assert sorted(leaves()) == sorted({*CASES, *ELSEWHERE, *refused})
    assert SamplerSpec in Part.__subclasses__()


@pytest.mark.parametrize("path", UNBUILT, ids=".".join)
def test_a_key_that_nothing_acts_on_is_refused(path: tuple[str, str]) -> None:
    content = BASE | {path[0]: {path[1]: ["puid", "x"] if path[1] == "query_params" else "7%"}}
    (problem,) = check(yaml.safe_dump(content))
    assert (problem.path, problem.warning) == (".".join(path), False)


@pytest.mark.parametrize("key", CASES)
async def test_changing_a_key_changes_what_somebody_gets(
    client: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    first, second = both(key)
    number = sorted(CASES).index(key)
    seen = [
        await walk(client, context, monkeypatch, content, f"k{number}-{place}")
        for place, content in enumerate((first, first, second))
    ]
    assert seen[0] == seen[1], "the same file gives the same twice"
    assert seen[0] != seen[2], f"{key} changes nothing"


def both(key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two files that differ in one key."""
    if key in WHOLE:
        return merged(BASE, WHOLE[key][0]), merged(BASE, WHOLE[key][1])
    beside, one, other = CASES[key]
    base = merged(BASE, beside)
    return merged(base, nested(key, one)), merged(base, nested(key, other))


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """One tree over another; what is not a mapping, or is `probs`, is replaced."""
    whole = {"probs", "strings", "alt", "details"}
    return base | {
        key: merged(base[key], value)
        if isinstance(value, dict) and isinstance(base.get(key), dict) and key not in whole
        else value
        for key, value in change.items()
    }


async def walk(
    client: httpx.AsyncClient,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    content: dict[str, Any],
    name: str,
) -> list[Any]:
    """Everything that a participant gets from beginning to end, with the name of the experiment taken out."""
    one = await study(client, context, yaml.safe_dump(content), name)
    # The same participant's id each time: queries and sides follow from it and from the seed.
    monkeypatch.setattr(secrets, "choice", random.Random(5).choice)
    at, headers = f"/e/{one.slug}/", {"accept": "text/html"}
    parameters = MTURK if "mturk" in str(content.get("recruitment")) else {"puid": "somebody"}
    seen: list[Any] = []

    async def get(method: str, path: str, **options: Any) -> Any:
        reply = await client.request(method, at + path, **options)
        text = reply.text.replace(one.slug, "SLUG")
        seen.append(
            (
                method,
                path,
                reply.status_code,
                re.sub(r"[\w.-]{60,}", "TOKEN", text),
                reply.headers.get("content-security-policy"),
            )
        )
        return reply.json() if "json" in reply.headers.get("content-type", "") else {}

    await get("GET", "", params=parameters, headers=headers)
    await get("GET", "", headers=headers)
    await get("GET", "own.css")
    await get("GET", "own.js")
    arrival = await get("POST", "arrive", json={"parameters": parameters})
    monkeypatch.undo()
    if "session" not in arrival:
        return seen
    own = {"X-Salmon-Session": arrival["session"]}
    step = arrival["step"]
    bodies: dict[str, dict[str, Any]] = {
        "consent": {"agreed": True},
        "practice": {"trials": [{"query": 0, "winner": 1, "rt_ms": 500.0}]},
        "comprehension": {"options": ["near"]},
        "questions": {"replies": {}},
    }
    while step not in {"trials", "out"}:
        done = await get("POST", f"steps/{step}", json=bodies.get(step, {}), headers=own)
        if done.get("next", step) == step:
            break
        step = done["next"]
    for _ in range(4):
        query = await get("GET", "query", headers=own)
        if "token" not in query:
            break
        await get("POST", "answers", json={"token": query["token"], "winner": query["left"], "rt_ms": 700})
    await get("POST", "steps/questions", json=bodies["questions"], headers=own)
    await get("POST", "finish", json={"given": 4}, headers=own)
    seen.append(await come_back(client, one))
    unsigned = {"head": 0, "left": 1, "right": 2, "winner": 1, "sampler": "one", "puid": "x"}
    seen.append((await client.post("/answer", json=unsigned)).status_code)
    seen.append((await client.get("/query", params={"sampler": "one"})).status_code)
    await context.store.experiments.set_state(
        (await context.catalogue.find(one.slug)).id, "closed", now_ms=context.now_ms()
    )
    return seen


async def come_back(client: httpx.AsyncClient, one: Study) -> Any:
    """What somebody is told who has answered once and opens the link again an hour later."""
    parameters = MTURK | {"workerId": "another", "PROLIFIC_PID": "p" * 24, "puid": "another"}
    if (await client.post(f"/e/{one.slug}/arrive", json={"parameters": parameters})).status_code != 200:
        parameters = {"puid": "another"}
    reply = await client.post(f"/e/{one.slug}/arrive", json={"parameters": parameters})
    if reply.status_code != 200 or reply.json()["step"] != "welcome":
        return reply.status_code
    query = await client.get(f"/e/{one.slug}/query", headers={"X-Salmon-Session": reply.json()["session"]})
    if query.status_code != 200:
        return query.status_code
    await one.answer({"token": query.json()["token"], "winner": query.json()["left"]})
    app: Any = client._transport.app  # type: ignore[attr-defined]
    own = app.state.context
    app.state.context = replace(own, now_ms=lambda: own.now_ms() + 3_600_000)
    try:
        reply = await client.post(f"/e/{one.slug}/arrive", json={"parameters": parameters})
    finally:
        app.state.context = own
    told = reply.json()
    session = {"X-Salmon-Session": told.get("session", "")}
    await client.get(f"/e/{one.slug}/query?number=2", headers=session)
    claimed = await client.post(f"/e/{one.slug}/finish", json={"given": 2, "incomplete": True}, headers=session)
    return reply.status_code, told.get("review"), told.get("answers"), claimed.json().get("complete")


async def test_a_picture_of_the_instructions_is_sent_to_the_page(
    client: httpx.AsyncClient, context: Context, tmp_path: Path
) -> None:
    archive = write_zip(tmp_path / "t.zip", [(f"{k}.png", picture(k)) for k in range(4)])
    seen: list[Any] = []
    for name in ("1.png", "2.png"):
        spec = yaml.safe_dump({"instructions": [{"text": "Look.", "image": name}], "samplers": {"Random": {}}})
        made, _ = await launch(
            context,
            spec.encode(),
            spec_name=Path("x.yaml"),
            archive=archive,
            name=f"pictured-{name[0]}",
            owner="o",
            state="open",
        )
        reply = await client.post(f"/e/{made.slug}/arrive", json={"parameters": {"puid": "a"}})
        seen.append(reply.raise_for_status().json()["steps"])
    assert seen[0] != seen[1]


#: Argument -> two values of it.
ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "d": (2, 3),
    "R": (1, 2),
    "ridge": (0.1, 0.2),
    "lapse": (0.0, 0.1),
    "k": (1, 2),
    "alpha": (1, 2),
    "mu": (0.1, 0.2),
    "module__alpha": (1, 2),
    "module__mu": (0.1, 0.2),
    "n_search": (10, 20),
    "noise": ("STE", "SOE"),
    "module": ("STE", "SOE"),
    "random_share": (0.1, 0.2),
    "leave_out": ("clickers", "nobody"),
    "scorer": ("infogain", "uncertainty"),
    "fresh_posterior": (True, False),
    "n_top": (1, 2),
    "priority": ("random", "scores"),
    "targets": ([0, 1, 2], [1, 2, 3]),
    "queries": ([[0, 1, 2]], [[0, 2, 3]]),
    "n_queries": (5, 6),
}


@pytest.mark.parametrize("name", [*ACTIVE, *PASSIVE])
def test_every_argument_of_a_sampler_changes_the_sampler(name: str) -> None:
    for argument in argument_names(name):  # type: ignore[arg-type]
        if name in ACTIVE and not has_effect(name, argument):  # type: ignore[arg-type]
            (warning,) = check(
                yaml.safe_dump(BASE | {"samplers": {name: {argument: _plain_value(argument)}}, "sampling": {}})
            )
            assert (warning.path, warning.warning) == (f"samplers.{name}.{argument}", True)
            continue
        made = []
        for value in ARGUMENTS[argument]:
            noise = {"mu": "CKL"}.get(argument.removeprefix("module__"), "TSTE")
            chosen = {"module" if "module" in argument_names(name) else "noise": noise}  # type: ignore[arg-type]
            own = {argument: value} if name in PASSIVE or argument in chosen else chosen | {argument: value}
            spec = parse_spec(yaml.safe_dump(BASE | {"samplers": {name: own}, "sampling": {}})).spec.samplers[name]
            arguments: Any = dict(spec.arguments)
            made.append(active_sampler(name, arguments) if name in ACTIVE else PASSIVE[name](**arguments))
            shared = {"samplers": {name: {}}, "sampling": {"common": own}}
            common: Any = dict(parse_spec(yaml.safe_dump(BASE | shared)).spec.samplers[name].arguments)
            assert name in PASSIVE or active_sampler(name, common) == made[-1], "sampling.common means the same"
        assert made[0] != made[1], f"{name}.{argument} changes nothing"


def _plain_value(argument: str) -> Any:
    return "GeoDamp" if argument == "optimizer" else 0.5 if argument in {"optimizer__lr", "optimizer__momentum"} else 7


@pytest.mark.parametrize("test", [False, True])
async def test_answers_of_a_test_sampler_are_never_fitted(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service], *, test: bool
) -> None:
    spec = (
        f"targets: 30\nhtml: {{max_queries: 0}}\nsamplers: {{Adaptive: {{}}, Random: {{test: {str(test).lower()}}}}}\n"
    )
    crowd, experiment = await started(client, settings, store, f"test-{str(test).lower()}", spec)
    await crowd.answer(40)
    asked = [query["sampler"] for queries in crowd.asked.values() for query in queries]
    wanted = asked.count("Adaptive") if test else 40
    service = open_service()
    run_until(service, lambda: absorbed(service, experiment) == wanted)
    assert 0 < asked.count("Random") < 40
