"""Output schemas as small, and as quick to check, as they say the same."""

from functools import cache
from typing import Any

from pydantic import BaseModel

_SAID_ELSEWHERE = frozenset({"title", "description", "default"})
_NULL = {"type": "null"}


@cache
def lean_output(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of an answer without its titles, descriptions and defaults.

    Clients check each result against it, so what is cheap to say in one word is: a text or null is one type of two
    instead of one of two schemas, and an enumeration stands where it is used.
    """
    schema = model.model_json_schema(mode="serialization")
    lean: dict[str, Any] = _lean(schema, schema.get("$defs", {}))
    used = {name: value for name, value in lean.get("$defs", {}).items() if "properties" in value}
    return {key: value for key, value in lean.items() if key != "$defs"} | ({"$defs": used} if used else {})


def _lean(schema: Any, definitions: dict[str, Any], *, names: bool = False) -> Any:
    if isinstance(schema, list):
        return [_lean(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if not names:
        schema = _one_type(_inlined(schema, definitions), definitions)
    return {
        # Below these two, keys are names of ours and no words of the schema.
        key: _lean(value, definitions, names=not names and key in {"properties", "$defs"})
        for key, value in schema.items()
        if names or key not in _SAID_ELSEWHERE
    }


def _inlined(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """An enumeration in the place of a reference to it."""
    named = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], {})
    return named if "enum" in named else schema


def _one_type(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    options = schema.get("anyOf", [])
    if len(options) != 2 or _NULL not in options:
        return schema
    (other,) = [option for option in options if option != _NULL] or [_NULL]
    other = _inlined(other, definitions)
    if not isinstance(other.get("type"), str):
        return schema
    merged = {key: value for key, value in schema.items() if key != "anyOf"} | other
    merged["type"] = [other["type"], "null"]
    if "enum" in other:
        merged["enum"] = [*other["enum"], None]
    return merged
