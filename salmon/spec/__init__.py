"""What an experiment is: its file, read with every mistake found at its place, and the targets that came with it."""

from salmon.spec.archive import Sink, check_archive, read_archive
from salmon.spec.dump import dump_spec
from salmon.spec.manifest import Manifest, ManifestEntry, ManifestMerge, TargetKind, TargetSpec, merge_manifests
from salmon.spec.parse import DefaultSampler, ParsedSpec, check, parse_spec
from salmon.spec.schema import SamplerSpec, Spec
from salmon.spec.targets import targets_of

__all__ = [
    "DefaultSampler",
    "Manifest",
    "ManifestEntry",
    "ManifestMerge",
    "ParsedSpec",
    "SamplerSpec",
    "Sink",
    "Spec",
    "TargetKind",
    "TargetSpec",
    "check",
    "check_archive",
    "dump_spec",
    "merge_manifests",
    "parse_spec",
    "read_archive",
    "targets_of",
]
