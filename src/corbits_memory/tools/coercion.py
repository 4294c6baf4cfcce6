"""What models send instead of what was asked for, made into that where it can mean one thing only."""

import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_DIGITS = re.compile(r"[0-9]{1,16}")
_FLAGS = {"true": True, "false": False}


def _number(value: Any) -> Any:
    """``"5"`` and ``5.0`` are 5; ``true`` is no number."""
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _flag(value: Any) -> Any:
    return _FLAGS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """One text is a list of one, and a list may come as the JSON of one. Nulls and blanks in it are left out."""
    if isinstance(value, str):
        value = _list_in(value) or [value]
    if isinstance(value, (list, tuple)):
        return [
            item for item in value if item is not None and not (isinstance(item, str) and not item.strip())
        ]
    return value


def _list_in(text: str) -> list[Any] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _object(value: Any) -> Any:
    """An object may come as its JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


Required = Annotated[str, Field(min_length=1), AfterValidator(_not_blank)]
Number = Annotated[int, Field(strict=True), BeforeValidator(_number)]
Flag = Annotated[bool, Field(strict=True), BeforeValidator(_flag)]
Texts = Annotated[list[str], BeforeValidator(_texts)]


class Arguments(BaseModel):
    """Arguments of a tool. Nulls and blanks count as absent; what is not declared is dropped and goes nowhere."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: Any) -> Any:
        given = _object(given)
        if not isinstance(given, dict):
            return given
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {
            name: value
            for name, value in given.items()
            if value is not None and (name in required or not isinstance(value, str) or value.strip())
        }

    def given(self) -> dict[str, Any]:
        """Those that were given, by their names in Python."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def lean_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of arguments, as small as it says the same: a model pays for each word of it."""
    schema = model.model_json_schema()
    lean: dict[str, Any] = _lean(schema, schema.get("$defs", {}))
    return {"type": "object", "properties": lean.get("properties", {})} | {
        "required": lean.get("required", []),
        "additionalProperties": False,
    }


def _lean(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_lean(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        described = {name: value for name, value in schema.items() if name != "$ref"}
        named = definitions[schema["$ref"].rpartition("/")[2]]
        # Its docstring is for readers of the code.
        return _lean({k: v for k, v in named.items() if k != "description"} | described, definitions)
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        about = {name: value for name, value in schema.items() if name != "anyOf"}
        return _lean({**options[0], **about}, definitions)
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in {"title", "$defs"} or (name == "default" and value is None):
            continue
        if name == "properties":
            kept[name] = {key: _lean(item, definitions) for key, item in value.items()}
        else:
            kept[name] = _lean(value, definitions)
    if "properties" in kept:
        kept["additionalProperties"] = False
    return kept
