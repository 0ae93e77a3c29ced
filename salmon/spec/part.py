"""What all parts of a spec have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from salmon.spec.nodes import Scalar


def _is_nothing(value: Any) -> bool:
    return isinstance(value, Scalar) and value.empty


def _has_default(part: type[BaseModel], key: Any) -> bool:
    return key in part.model_fields and not part.model_fields[key].is_required()


class Part(BaseModel):
    """A part of a spec: frozen, and nothing in it that is not declared. A key with nothing after it means its default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _default_for_nothing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if not (_is_nothing(value) and _has_default(cls, key))}  # pyright: ignore[reportUnknownVariableType]
