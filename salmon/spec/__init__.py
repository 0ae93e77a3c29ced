"""Read the file that describes an experiment and the targets that came with it,
reporting every mistake at its place.
"""

from salmon.spec.json_schema import editor_schema, spec_schema
from salmon.spec.manifest import Manifest, ManifestEntry, ManifestMerge, TargetKind, TargetSpec, merge_manifests
from salmon.spec.parse import (
    DefaultSampler,
    ExaminedSpec,
    ParsedSpec,
    check,
    dump_spec,
    examine_spec,
    parse_spec,
    read_stored_spec,
    read_tree,
    spec_tree,
    targets_of,
    write_tree,
)
from salmon.spec.schema import SamplerSpec, Spec
from salmon.spec.target_zip import Sink, check_archive, read_archive

__all__ = [
    "DefaultSampler",
    "ExaminedSpec",
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
    "editor_schema",
    "examine_spec",
    "merge_manifests",
    "parse_spec",
    "read_archive",
    "read_stored_spec",
    "read_tree",
    "spec_schema",
    "spec_tree",
    "targets_of",
    "write_tree",
]
