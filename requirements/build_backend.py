"""Setuptools as build backend, without what an earlier build has left in `build/lib`.

setuptools packs everything that lies there into the wheel, also files that are no part of the packages any more.
"""

import shutil
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(wheel_directory: str, *options: Any, **more: Any) -> str:
    """Build the wheel from the sources as they are now; return its file name."""
    shutil.rmtree("build/lib", ignore_errors=True)
    return build_meta.build_wheel(wheel_directory, *options, **more)
