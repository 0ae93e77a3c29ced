"""Every text that the participant page says by itself, in the languages it speaks.

A language is a file of names and texts; English has every name and the tests see to it that the others have the same.
Texts may hold fields in braces ({count}). Experimenters replace a text by its name, under `page.strings`.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

LANGUAGES = ("en", "de", "fr", "es", "pt", "zh", "ja", "ar")
#: Languages written from right to left, whether their texts are ours or the experimenter's.
_RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ur", "yi", "ps", "ckb", "dv"})


def language_of(wanted: str, written: str) -> str:
    """The language of the page: the one its link asks for where we speak it, else the
    one the experiment is written in.
    """
    return wanted if _base(wanted) in LANGUAGES else written


def strings_of(language: str, replaced: Mapping[str, str]) -> dict[str, str]:
    """Every text of the page by its name; a language that has no file of its own speaks English."""
    base = _base(language)
    return {name: replaced.get(name, text) for name, text in catalogue(base if base in LANGUAGES else "en").items()}


def direction_of(language: str) -> Literal["ltr", "rtl"]:
    """How a language is written."""
    return "rtl" if _base(language) in _RIGHT_TO_LEFT else "ltr"


@cache
def catalogue(language: str) -> dict[str, str]:
    """The texts of one language, as its file has them."""
    return json.loads((files(__package__ or "frontend.languages") / f"{language}.json").read_text(encoding="utf-8"))


def _base(language: str) -> str:
    """`pt` of `pt-BR`."""
    return language.lower().split("-")[0]
