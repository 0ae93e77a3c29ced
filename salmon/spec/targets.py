"""The final list of an experiment's targets: those of the ZIP, or those written in the spec."""

from __future__ import annotations

from dataclasses import replace

from salmon.spec.manifest import Manifest, TargetSpec, text_target
from salmon.spec.schema import Spec


def targets_of(spec: Spec, manifest: Manifest | None = None) -> tuple[TargetSpec, ...]:
    """The n targets, by index. A manifest replaces the targets of the spec; `page.alt` gives what screen readers say."""
    targets = (
        manifest.targets()
        if manifest is not None
        else tuple(text_target(place, text) for place, text in enumerate(spec.targets))
    )
    return tuple(
        replace(target, alt=spec.page.alt[target.filename]) if target.filename in spec.page.alt else target
        for target in targets
    )
