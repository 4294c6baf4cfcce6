"""Output schemas as small as they say the same."""

from functools import cache
from typing import Any

from pydantic import BaseModel

_SAID_ELSEWHERE = frozenset({"title", "description", "default"})


@cache
def lean_output(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of an answer without its titles, descriptions and defaults; hosts check results against it."""
    lean: dict[str, Any] = _lean(model.model_json_schema(mode="serialization"))
    return lean


def _lean(schema: Any, *, names: bool = False) -> Any:
    if isinstance(schema, list):
        return [_lean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        # Below these two, keys are names of ours and no words of the schema.
        key: _lean(value, names=not names and key in {"properties", "$defs"})
        for key, value in schema.items()
        if names or key not in _SAID_ELSEWHERE
    }
