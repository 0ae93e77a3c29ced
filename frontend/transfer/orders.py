"""Orders for the subprocess: which file of which experiment to write, or which uploaded files to import."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from frontend.errors import BadRequestError, NotFoundError
from salmon.wire import decode_json, encode_json

Excluded = Literal["mark", "leave_out"]

_TABLE = ("csv", "jsonl", "parquet")

#: Every file that can be asked for by name, and its forms.
EXTENSIONS: dict[str, tuple[str, ...]] = {
    "responses": _TABLE,
    "salmon_responses": ("csv", "json"),
    "participants": _TABLE,
    "platform_ids": _TABLE,
    "quality": _TABLE,
    "events": _TABLE,
    "targets": _TABLE,
    "models": _TABLE,
    "embeddings": _TABLE,
    "salmon_embeddings": ("csv",),
    "embedding_history": _TABLE,
    "triplettools_triplets": _TABLE,
    "triplettools_embeddings": _TABLE,
    "cblearn": ("npz", *_TABLE),
    "psiz": ("npz", *_TABLE),
    "config": ("yaml",),
    "provenance": ("json",),
    "README": ("md",),
    "analysis": ("ipynb", "R"),
}
#: Not asked for by name: the bundle has a route of its own, and finding verdicts writes no file but stores them.
BUNDLE = ("bundle", "zip")
VERDICTS = ("verdicts", "json")


@dataclass(frozen=True)
class ExportOrder:
    """Order of one file. `generation` 0 is the newest; `personal` says whether ids of platforms are in it."""

    slug: str
    name: str
    extension: str
    excluded: Excluded = "mark"
    sampler: str = ""
    generation: int = 0
    personal: bool = True

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(text: str) -> ExportOrder:
        """Return the order of that argument."""
        return ExportOrder(**decode_json(text))

    @property
    def filename(self) -> str:
        """The name under which it is saved."""
        return f"{self.slug}-{self.name}.{self.extension}"

    @property
    def filters(self) -> dict[str, str]:
        """What was asked for, as provenance tells it."""
        return {
            "excluded": self.excluded,
            "sampler": self.sampler or "all",
            "generation": str(self.generation or "newest"),
            "personal": "yes" if self.personal else "no",
        }


@dataclass(frozen=True)
class ImportOrder:
    """Order to import files: paths of the answers or bundle, of its description and of the ZIP of its targets.

    `name` is what the experimenter calls the file, `slug` the wanted name of the experiment; without one a bundle keeps
    its own, and other files are called `otherwise`.
    """

    answers: str
    name: str
    slug: str
    otherwise: str
    owner: str
    config: str = ""
    targets: str = ""

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(text: str) -> ImportOrder:
        """Return the order of that argument."""
        return ImportOrder(**decode_json(text))


def check_order(order: ExportOrder) -> ExportOrder:
    """Return the order, if a file of this name can be asked for; otherwise a sentence that lists what there is."""
    forms = EXTENSIONS.get(order.name)
    if forms is None:
        raise NotFoundError(
            f"There is no export called {order.name!r}.", hint=f"There are {', '.join(EXTENSIONS)}.", where="name"
        )
    if order.extension not in forms:
        raise NotFoundError(
            f"There is no {order.name}.{order.extension}.",
            hint=f"There is {' and '.join(f'{order.name}.{form}' for form in forms)}.",
            where="extension",
        )
    if order.excluded not in get_args(Excluded):
        raise BadRequestError("excluded is mark or leave_out.", where="excluded")
    if order.name == "platform_ids" and not order.personal:
        raise BadRequestError(
            "This file holds nothing but ids of platforms.", hint="Leave out personal=no.", where="personal"
        )
    return order
