"""A Spec as the file that would describe it, every default written out."""

from __future__ import annotations

from typing import Any

import yaml

from salmon.spec.schema import SamplerSpec, Spec
from salmon.spec.values import percent

#: What the recruitment platforms trust us with; never shown before completion, never in what is handed on.
SECRETS = (("recruitment", "completion_code"), ("recruitment", "redirect"), ("recruitment", "sona"))

_NO_FOLDING = 2**31 - 1  # a folded text is hard to find again


def dump_spec(spec: Spec, *, secrets: bool = True) -> str:
    """YAML that parses to the same Spec. Without `secrets`, codes and tokens of platforms are left out."""
    content = spec.model_dump(mode="json")
    content["samplers"] = {name: _sampler(sampler) for name, sampler in spec.samplers.items()}
    if not secrets:
        for part, key in SECRETS:
            content[part].pop(key)
    if not spec.targets:
        del content["targets"]  # they are in a ZIP
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_NO_FOLDING)


def _sampler(sampler: SamplerSpec) -> dict[str, Any]:
    arguments = sampler.model_dump(mode="json")["arguments"]
    if "random_share" in arguments:
        arguments["random_share"] = percent(arguments["random_share"])
    return {"class": sampler.sampler_class, "test": sampler.test, **arguments}
