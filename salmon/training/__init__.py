"""Train any torch module on one or many workers, with pluggable batch sizes, averaging, compression and policies.

Public names are imported on first use, so that importing this package does not load torch.
"""

from importlib import import_module
from typing import Any

#: Public names of each module.
_PUBLIC = {
    "averaging": ("ADPSGD", "Averaging", "CPSGD", "Crossbow", "FullSync"),
    "batch_size": (
        *("AdaDamp", "AdaDampLR", "BatchSize", "BatchSizeInputs", "ConstantBatch", "GeoDamp", "GeoDampLR"),
        *("PadaDamp", "PadaDampLR", "PlateauDamp", "RadaDamp", "RadaDampLR"),
    ),
    "compression": (
        *("Compression", "EntrywiseAtomo", "QSGD", "SpectralAtomo", "TernGrad"),
        *("compression_hook", "rounding_hook"),
    ),
    "estimators": ("DaskClassifier", "DaskRegressor"),
    "groups": ("TorchGroup", "VirtualGroup"),
    "history": ("TrainingHistory",),
    "hyperband": ("HyperbandSearch", "rule_of_thumb"),
    "loop": ("TrainingResult", "fit"),
    "monitors": ("GradientVariance", "NoiseScale", "SmoothedLoss"),
    "policies": ("FollowNoiseScale", "InverseStep", "RateSchedule", "StepPlan", "StepsAt", "WorkersFollow"),
    "shards": ("ShardedData",),
    "state": ("Checkpoint",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"salmon.training.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'salmon.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_MODULES)
