"""Training any torch module over many workers: one loop, to which every method is a value.

The public names are resolved when they are first used: batch sizes, averaging and compression load no torch.
"""

from importlib import import_module
from typing import Any

#: Public name -> the module that holds it.
_PUBLIC = {
    **dict.fromkeys(
        ("AdaDamp", "AdaDampLR", "BatchSize", "ConstantBatch", "GeoDamp", "GeoDampLR", "PadaDamp", "PadaDampLR"),
        "salmon.distributed.batch_size",
    ),
    **dict.fromkeys(("RadaDamp", "RadaDampLR", "Seen"), "salmon.distributed.batch_size"),
    **dict.fromkeys(("ADPSGD", "CPSGD", "Averaging", "Crossbow", "FullSync"), "salmon.distributed.averaging"),
    **dict.fromkeys(
        ("Compression", "EntrywiseAtomo", "QSGD", "SpectralAtomo", "TernGrad"), "salmon.distributed.compression"
    ),
    **dict.fromkeys(("GradientVariance", "NoiseScale", "SmoothedLoss"), "salmon.distributed.monitors"),
    **dict.fromkeys(
        ("FollowNoiseScale", "InverseStep", "Plan", "StepsAt", "WorkersFollow"), "salmon.distributed.policies"
    ),
    **dict.fromkeys(("Fit", "fit"), "salmon.distributed.loop"),
    "Checkpoint": "salmon.distributed.checkpoint",
    "DaskClassifier": "salmon.distributed.neural",
    "DaskRegressor": "salmon.distributed.neural",
    "History": "salmon.distributed.history",
    "HyperbandSearch": "salmon.distributed.selection",
    "Network": "salmon.distributed.network",
    "TorchGroup": "salmon.distributed.torch_group",
    "VirtualGroup": "salmon.distributed.group",
    "compression_hook": "salmon.distributed.hook",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'salmon.distributed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
