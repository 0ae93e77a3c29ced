"""An experiment's file is read as its experimenter meant it."""

import pickle
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from salmon.errors import SpecError
from salmon.noise import NOISE_MODELS as NOISE_MODEL_TABLE
from salmon.samplers.passive import PASSIVE
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.spec import Manifest, ManifestEntry, Spec, dump_spec, parse_spec, read_stored_spec, targets_of
from salmon.spec.sampler_arguments import (
    ACTIVE_CLASSES,
    NOISE_MODELS,
    PASSIVE_CLASSES,
    argument_names,
    has_effect,
    models_with,
)
from tests.strategies import EXAMPLES

THREE = "targets: [red, green, blue]\n"


def test_a_list_of_targets_is_an_experiment():
    parsed = parse_spec(THREE)
    assert (parsed.warnings, parsed.spec.targets) == ((), ("red", "green", "blue"))
    assert parsed.spec.title == "Similarity judgements"
    (sampler,) = parsed.spec.samplers.values()
    assert (sampler.sampler_class, dict(sampler.arguments)) == (
        "Adaptive",
        {"d": 2, "noise": "TSTE", "random_share": 0.15},
    )
    assert parsed.spec.probabilities == {"Adaptive": 100}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_is_right_and_survives_being_written_again(path: Path):
    parsed = parse_spec(path.read_bytes(), zip_follows=path.with_name("targets.zip").exists())
    assert parsed.warnings == ()
    assert parse_spec(dump_spec(parsed.spec), zip_follows=not parsed.spec.targets).spec == parsed.spec
    assert Spec.model_validate_json(parsed.spec.model_dump_json()) == parsed.spec
    assert pickle.loads(pickle.dumps(parsed.spec)) == parsed.spec


def test_the_full_example_uses_every_key_but_those_of_other_platforms():
    spec = parse_spec(next(path for path in EXAMPLES if path.parent.name == "full").read_bytes()).spec
    assert set(Spec.model_fields) - spec.model_fields_set == {"groups", "notify", "security", "stopping"}
    assert spec.practice is not None
    assert spec.practice.queries == ((0, 1, 4, 1), (4, 5, 2, 5))


def test_what_looks_like_a_number_a_date_or_a_no_is_a_target_as_it_is_written():
    spec = parse_spec("targets: [no, 1.0, 2026-01-01, 0x1F, 1e3, null, ~, 12:30, 'yes', 007]").spec
    assert spec.targets == ("no", "1.0", "2026-01-01", "0x1F", "1e3", "null", "~", "12:30", "yes", "007")


def test_targets_are_text_or_html_by_what_they_hold():
    targets = targets_of(
        parse_spec("targets: [a & b, <b>bold</b>, caf&eacute;]\npage: {alt: {<b>bold</b>: thick}}").spec
    )
    assert [(target.index, target.kind, target.alt, target.filename) for target in targets] == [
        (0, "text", "a & b", "a & b"),
        (1, "html", "thick", "<b>bold</b>"),
        (2, "html", "", "caf&eacute;"),
    ]


def test_old_files_keep_their_meaning():
    text = (
        THREE
        + """
html: {instructions: Choose., max_queries: -1, skip_button: yes, arrow_keys: off, own: [1, 2.5, no], query_params: [puid]}
samplers:
  ARR: {R: 1, module: CKL, priority: random, optimizer__lr: 0.1, module__mu: 0.05}
  mine: {class: RoundRobin}
sampling:
  common: {d: 3, random_state: 42, initial_batch_size: 128}
  probs: {ARR: 80, mine: 20}
  samplers_per_user: 0
  details: {1: {sampler: mine, query: [0, 1, 2]}, 20: {sampler: ARR}}
"""
    )
    parsed = parse_spec(text)
    spec = parsed.spec
    assert [problem.path for problem in parsed.warnings] == [
        "html.own",
        "html.query_params",
        "samplers.ARR.optimizer__lr",
    ]
    assert spec.html.model_extra == {"own": [1, 2.5, False]}
    assert (spec.html.max_queries, spec.html.skip_button, spec.html.arrow_keys) == (-1, True, False)
    assert dict(spec.samplers["ARR"].arguments) == {
        "d": 3,
        "random_state": 42,
        "initial_batch_size": 128,
        "R": 1,
        "module": "CKL",
        "priority": "random",
        "optimizer__lr": 0.1,
        "module__mu": 0.05,
    }
    assert dict(spec.samplers["mine"].arguments) == {}, "a passive sampler ignores what is common to active ones"
    assert spec.probabilities == {"ARR": 80, "mine": 20}
    assert {trial: detail.query for trial, detail in spec.sampling.details.items()} == {1: (0, 1, 2), 20: None}


def test_samplers_can_be_a_list_and_have_old_names():
    parsed = parse_spec(THREE + "samplers:\n  - RandomSampling\n  - ARR: {noise: STE}\n")
    assert [(sampler.name, sampler.sampler_class) for sampler in parsed.spec.samplers.values()] == [
        ("RandomSampling", "Random"),
        ("ARR", "ARR"),
    ]
    assert parsed.spec.samplers["ARR"].arguments["module"] == "STE"
    assert [problem.sentence() for problem in parsed.warnings] == [
        "3:5: warning: RandomSampling is now called Random. It is read under the new name."
    ]


@pytest.mark.parametrize(
    ("written", "share"),
    [("15%", 0.15), ("15", 0.15), (".15", 0.15), ("0.15", 0.15), ("0", 0), ("1%", 0.01), ("100%", 1)],
)
def test_a_share_can_be_written_in_three_ways(written: str, share: float):
    assert (
        parse_spec(
            THREE + f"stopping: {{accuracy_gain_below: {written}}}", stored=True
        ).spec.stopping.accuracy_gain_below
        == share
    )


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("2h", timedelta(hours=2)),
        ("30s", timedelta(seconds=30)),
        ("15 min", timedelta(minutes=15)),
        ("1h 30min", timedelta(minutes=90)),
        ("0", timedelta(0)),
    ],
)
def test_a_length_of_time_has_its_unit(written: str, length: timedelta):
    assert parse_spec(THREE + f"resume: {{max_gap: {written}}}").spec.resume.max_gap == length


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (THREE + "html:\nsamplers:\npage: {background: , keys: }\nconsent:\n", THREE),
        (THREE + "title: Eggs", THREE + "html: {title: Eggs}"),
        (b"\xef\xbb\xbf" + THREE.replace("\n", "\r\n").encode(), THREE),
    ],
    ids=["keys with nothing after them", "the title at the top", "a byte order mark and Windows lines"],
)
def test_two_ways_of_writing_a_spec_mean_the_same(one: str | bytes, other: str):
    assert parse_spec(one).spec == parse_spec(other).spec


def test_merge_keys_and_aliases_are_read_as_yaml_means_them():
    spec = parse_spec(THREE + "samplers:\n  a: &a {class: ARR, R: 2}\n  b: {<<: *a, R: 3}\n  c: *a\n").spec
    assert {name: (sampler.sampler_class, sampler.arguments["R"]) for name, sampler in spec.samplers.items()} == {
        "a": ("ARR", 2),
        "b": ("ARR", 3),
        "c": ("ARR", 2),
    }


def test_codes_and_tokens_can_be_left_out_of_what_is_handed_on():
    sona = "sona: {school: psych, experiment_id: 12, credit_token: a1b2c3d4e5}"
    spec = parse_spec(
        THREE
        + f"recruitment: {{platform: sona, completion_code: SECRET1, redirect: 'https://a.org/?c=SECRET2', {sona}}}"
    ).spec
    assert "SECRET1" in dump_spec(spec)
    shown = dump_spec(spec, secrets=False)
    assert not any(secret in shown for secret in ("SECRET1", "SECRET2", "a1b2c3d4e5"))


@pytest.mark.parametrize(
    "settings",
    [
        "{platform: link, redirect: 'https://x.org/?id={puid}&code={code}'}",
        "{platform: prolific, completion_code: C1ABC}",
        "{platform: connect, connect: {project: A1B2C3D4}}",
        "{platform: sona, sona: {school: psych.sona-systems.com, experiment_id: 12, credit_token: a1b2c3d4e5}}",
        "{platform: mturk, mturk: {host: live}}",
    ],
)
def test_every_platform_can_be_recruited_from(settings: str):
    assert parse_spec(THREE + f"recruitment: {settings}").warnings == ()


def test_a_spec_cannot_be_changed():
    spec = parse_spec(THREE).spec
    with pytest.raises(ValueError, match="frozen"):
        spec.seed = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        spec.samplers["x"] = None  # pyright: ignore[reportIndexIssue]


def test_an_error_lists_every_problem_with_the_name_of_the_file():
    with pytest.raises(SpecError) as caught:
        parse_spec("titel: x\nseed: -1\n", name="eggs.yaml")
    assert str(caught.value).splitlines() == [
        "eggs.yaml:1:1: There is no key 'titel'. Did you mean title?",
        "eggs.yaml:1:1: There are no targets. Write targets: with a list, or upload a ZIP.",
        "eggs.yaml:2:7: seed must be a whole number from 0 to 9,007,199,254,740,991, not '-1'.",
    ]


def test_the_spec_names_the_noise_models_and_samplers_that_there_are():
    for named, there in ((NOISE_MODELS, NOISE_MODEL_TABLE), (PASSIVE_CLASSES, PASSIVE), (ACTIVE_CLASSES, ACTIVE)):
        assert set(named) == set(there)


@pytest.mark.parametrize("sampler_class", ACTIVE_CLASSES)
@pytest.mark.parametrize("noise", NOISE_MODELS)
def test_whatever_a_spec_takes_for_a_sampler_the_sampler_takes(sampler_class: str, noise: str):
    words = {"noise": noise, "module": noise, "scorer": "infogain", "priority": "scores", "optimizer": "Embedding"}
    words |= {"lapse": "0.1", "random_share": "15%", "leave_out": "nobody"}
    for argument in argument_names(sampler_class):
        common = f"sampling: {{common: {{noise: {noise}, {argument}: {words.get(argument, 1)}}}}}"
        noise_name = "noise" if "noise" in argument_names(sampler_class) else "module"
        own = {noise_name: noise} | ({argument: words.get(argument, 1)} if noise in models_with(argument) else {})
        arguments = ", ".join(f"{key}: {value}" for key, value in own.items())
        text = f"{THREE}samplers:\n  {sampler_class}:\n  own: {{class: {sampler_class}, {arguments}}}\n"
        for sampler in parse_spec(text + (common if argument != noise_name else "")).spec.samplers.values():
            active_sampler(sampler.sampler_class, sampler.arguments)


def test_reading_a_spec_loads_no_learning_code():
    heavy = "{'numpy', 'torch', 'dask', 'scipy', 'sklearn'} & set(sys.modules)"
    code = f"import sys, salmon.spec, frontend.media; loaded = {heavy}; sys.exit(f'loaded {{loaded}}' if loaded else 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == ""


def test_arguments_have_an_effect_exactly_where_the_sampler_has_a_field_for_them():
    for name, sampler in ACTIVE.items():
        own = {field.name for field in fields(sampler)} | {"noise", "module"}
        for argument in argument_names(name):
            of_the_noise_model = argument.removeprefix("module__") in {"alpha", "mu", "k"}
            assert has_effect(name, argument) == (argument in own or of_the_noise_model), (name, argument)


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_stored_spec_is_read_in_the_form_of_this_version_and_in_that_of_the_one_before(source: Path):
    spec = parse_spec(source.read_bytes(), zip_follows=True).spec
    assert spec.to_json().startswith("{")
    assert read_stored_spec(spec.to_json()) == spec
    with_targets = spec.model_copy(update={"targets": spec.targets or ("a", "b", "c", "d", "e", "f")})
    assert read_stored_spec(dump_spec(with_targets)).samplers == spec.samplers


def test_a_stored_spec_that_was_damaged_is_refused_with_its_place():
    stored = parse_spec(THREE).spec.to_json().replace('"sampler_class":"Adaptive"', '"sampler_class":"Adaptable"')
    with pytest.raises(SpecError) as caught:
        read_stored_spec(stored)
    assert [problem.path for problem in caught.value.problems] == ["samplers.Adaptive.sampler_class"]


@pytest.mark.parametrize(("page", "trusted"), [("", False), ("page: {trusted: true}", True)])
def test_a_zip_is_read_once_and_told_whether_the_file_is_trusted(page: str, trusted: bool):
    unpack = Unpacking()
    assert parse_spec(page, unpack=unpack).manifest == Manifest(unpack.entries)
    assert unpack.asked == [trusted]


def test_a_zip_is_not_trusted_by_a_file_that_says_so_unreadably():
    unpack = Unpacking()
    with pytest.raises(SpecError) as caught:
        parse_spec("page: {trusted: perhaps}", unpack=unpack)
    assert ([problem.path for problem in caught.value.problems], unpack.asked) == (["page.trusted"], [False])


class Unpacking:
    """Reads a ZIP of three pictures, and remembers how it was asked to."""

    entries = tuple(ManifestEntry(k, f"{k}.png", "image", f"{k}" * 64, 9, "png") for k in range(3))

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def __call__(self, trusted: bool) -> Manifest:
        self.asked.append(trusted)
        return Manifest(self.entries)
