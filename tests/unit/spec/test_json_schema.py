"""The schema that editors get says about every key what it means, and knows no other keys than the reader."""

import json
from collections.abc import Iterator
from typing import Any

from salmon.spec import Spec, spec_schema
from salmon.spec.json_schema import DESCRIPTIONS


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
