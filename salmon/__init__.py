"""Salmon: active ordinal embedding, which finds out what to ask next and fits a map to the answers.

Public names are imported on first use: `import salmon.wire` stays light, and `from salmon import OrdinalEmbedding`
loads what it needs.
"""

from importlib import import_module
from typing import Any

#: Public name -> the module that holds it.
_PUBLIC = {
    "OrdinalEmbedding": "salmon.estimator",
    "SalmonError": "salmon.errors",
    "parse_spec": "salmon.spec",
}

__all__ = ["OrdinalEmbedding", "SalmonError", "__version__", "parse_spec"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("salmon-triplets")
        except PackageNotFoundError:
            return "0+unknown"
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'salmon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
