"""The schema that editors get says about every key what it means, and knows no other keys than the reader."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from salmon.spec import Spec, editor_schema, parse_spec, read_tree, spec_schema
from salmon.spec.json_schema import DESCRIPTIONS
from tests.browser.participant import EVERYTHING


def described(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in part.get("properties", {}).items():
        where = f"{path}.{name}".lstrip(".")
        yield where, inner
        for below in (inner, inner.get("items"), inner.get("additionalProperties")):
            if isinstance(below, dict):
                yield from described(below, where)


def test_every_key_says_what_it_means() -> None:
    silent = [
        path
        for path, part in described(spec_schema())
        if not path.startswith("samplers.") and not part.get("description")
    ]
    assert silent == [], "add a sentence for each to DESCRIPTIONS in salmon/spec/json_schema.py"


def test_every_sentence_is_about_a_key() -> None:
    unknown = [path for path in DESCRIPTIONS if path != "title" and not knows(path.split("."))]
    assert unknown == []


def knows(path: list[str]) -> bool:
    """Whether the models have a key, whether or not it works yet."""
    return path[0] in Spec.model_fields and all(f'"{name}"' in json.dumps(Spec.model_json_schema()) for name in path)


def test_choices_and_defaults_are_those_of_the_reader() -> None:
    schema = spec_schema()["properties"]
    assert schema["recruitment"]["properties"]["platform"]["enum"] == ["link", "prolific", "connect", "sona", "mturk"]
    assert schema["page"]["properties"]["blank_ms"]["default"] == 200
    assert set(schema["samplers"]["properties"]["Adaptive"]["properties"]) >= {"d", "noise", "random_share", "test"}
    assert "random_share" not in schema["samplers"]["properties"]["Random"]["properties"]


def refused(text: str) -> list[str]:
    """Return what an editor marks in a file."""
    validator = jsonschema.Draft202012Validator(editor_schema())
    return [error.json_path for error in validator.iter_errors(read_tree(text))]


def test_editors_mark_nothing_in_the_examples(examples: Path) -> None:
    texts = [path.read_text() for path in sorted(examples.glob("*/experiment.yaml"))]
    assert len(texts) > 3
    assert [refused(text) for text in (*texts, EVERYTHING)] == [[]] * (len(texts) + 1)


@pytest.mark.parametrize(
    "text",
    [
        "targets: 12",
        "targets: [yes, 1.5, 2027]",
        "title: 2027",
        "checks: {catch: 5%, tolerate: '4'}",
        "html: {skip_button: 'yes', max_queries: '7'}",
        "samplers: {Random: }",
        "payment: {reward: 1.50, currency: GBP}",
    ],
)
def test_editors_accept_every_way_of_writing_a_value_that_is_read(text: str) -> None:
    parse_spec(text.encode() if "targets" in text else f"targets: [a, b, c]\n{text}\n".encode())
    assert refused(text) == []


def test_editors_mark_unknown_keys_and_choices() -> None:
    assert sorted(refused("recruitment: {platform: prolifik}\nresumee: {}")) == ["$", "$.recruitment.platform"]
