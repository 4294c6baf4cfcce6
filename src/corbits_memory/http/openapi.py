"""The OpenAPI document of the routes, generated from the table of operations and the wire models."""

import re
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.http.calls import Operation
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.http.routes import DEFAULT_PREFIX
from corbits_memory.wire.responses import ErrorResponse

JSON = "application/json"
FORM = "multipart/form-data"
_REF = "#/components/schemas/{model}"
_CONVERTOR = re.compile(r":[a-z]+(?=\})")
_ERRORS = {
    "400": "The input is not valid; details name the fields.",
    "401": "No credential, or not a valid one.",
    "403": "The caller lacks the capability, or the path names another tenant.",
    "404": "There is no such thing here, or the caller may not see it.",
    "409": "Refused by the state of the memory.",
    "413": f"The body is larger than {BODY_BYTES:,} bytes.",
    "429": "Too many requests, or too many wrong credentials; Retry-After says for how many seconds.",
    "500": "Ours.",
    "501": "This store can't do it.",
    "502": "A model's or the database's.",
    "503": "Not ready.",
}


def memory_openapi(*, prefix: str = DEFAULT_PREFIX) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the routes below ``prefix``; a host may merge it into its own."""
    template = _CONVERTOR.sub("", prefix.rstrip("/"))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        item = paths.setdefault(template + operation.path, {})
        item[operation.method.lower()] = _operation(operation, template + operation.path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Corbits Memory",
            "version": version("corbits-memory"),
            "description": "A memory plane for AI agents. Every answer has an x-request-id.",
        },
        "tags": [{"name": "memory", "description": "Remember documents and find them again."}],
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _operation(operation: Operation, path: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": f"Needs the capability `{operation.capability}`.",
        "tags": ["memory"],
        "parameters": [*_path_parameters(path), *operation.query],
        "responses": {"200": _body("The answer.", operation.response, operation.media_type)}
        | _error_responses(operation),
    }
    if operation.request is not None:
        described["requestBody"] = {
            "required": True,
            "content": _content(operation.request, FORM if operation.is_form else JSON),
        }
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _error_responses(operation: Operation) -> dict[str, Any]:
    return {
        status: _body(description, ErrorResponse)
        for status, description in _ERRORS.items()
        if (operation.request is not None or status != "413")
        and (operation.method != "GET" or status != "409")
        and ("{" in operation.path or status != "404")
    }


def _body(description: str, model: type[BaseModel], media_type: str = JSON) -> dict[str, Any]:
    return {
        "description": description,
        "headers": {"x-request-id": {"required": True, "schema": {"type": "string"}}},
        "content": _content(model, media_type),
    }


def _content(model: type[BaseModel], media_type: str = JSON) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": _REF.format(model=model.__name__)}}}


def _schemas() -> dict[str, Any]:
    requests: list[type[BaseModel]] = [item.request for item in OPERATIONS if item.request is not None]
    responses: list[type[BaseModel]] = [ErrorResponse, *(item.response for item in OPERATIONS)]
    return _definitions(requests, "validation") | _definitions(responses, "serialization")


def _definitions(models: list[type[BaseModel]], mode: JsonSchemaMode) -> dict[str, Any]:
    _, document = models_json_schema([(model, mode) for model in models], ref_template=_REF)
    definitions: dict[str, Any] = document["$defs"]
    return definitions
