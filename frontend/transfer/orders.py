"""What is asked for: one file of one experiment, and what of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from frontend.errors import BadRequestError, NotFoundError
from salmon.wire import decode_json, encode_json

Excluded = Literal["mark", "leave_out"]

_TABLE = ("csv", "jsonl", "parquet")

#: Everything that can be asked for, and in which forms.
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
#: Not files that are asked for by name: the bundle has a route of its own, and the judgement only leaves a memory.
BUNDLE = ("bundle", "zip")
VERDICTS = ("verdicts", "json")


@dataclass(frozen=True)
class Order:
    """One file. `generation` 0 is the newest; `personal` says whether ids of platforms are in it."""

    slug: str
    name: str
    extension: str
    excluded: Excluded = "mark"
    sampler: str = ""
    generation: int = 0
    personal: bool = True

    def encode(self) -> str:
        """Return the argument of the process."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(text: str) -> Order:
        """From that argument."""
        return Order(**decode_json(text))

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


def check_order(order: Order) -> Order:
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
