"""A mapping that cannot change, can be compared, hashed, sent to another process and written as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMap(Mapping[K, V_co]):
    """Keys with values in the order they were given; two are equal when they hold the same, in whatever order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V_co] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self._items),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validated as a dict, kept frozen, written as a dict."""
        key, value = get_args(source) or (Any, Any)
        inner = core_schema.dict_schema(handler.generate_schema(key), handler.generate_schema(value))
        return core_schema.no_info_before_validator_function(
            _thawed,
            core_schema.no_info_after_validator_function(cls, inner),
            serialization=core_schema.plain_serializer_function_ser_schema(dict, return_schema=inner),
        )


def _thawed(value: Any) -> Any:
    return dict(value) if isinstance(value, FrozenMap) else value  # pyright: ignore[reportUnknownVariableType]
