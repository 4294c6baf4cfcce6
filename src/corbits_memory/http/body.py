"""Reads a request's body within its limit, and JSON out of it."""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.errors import InvalidInputError, TooLargeError

NOT_JSON = {"field": "content-type", "problem": "must be application/json"}
TOO_LARGE = f"the body is larger than {BODY_BYTES:,} bytes; send less at once"

_JSON_TYPE = re.compile(r"application/(?:json|[a-z0-9!#$&^_.+-]+\+json)", re.IGNORECASE)


async def read_body(request: Request) -> bytes:
    """The body; 413 as soon as it is known to be too large, declared or counted."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > BODY_BYTES:
        raise TooLargeError(TOO_LARGE)
    read = bytearray()
    async for piece in request.stream():
        if len(read) + len(piece) > BODY_BYTES:
            raise TooLargeError(TOO_LARGE)
        read += piece
    return bytes(read)


def is_json(request: Request) -> bool:
    """Whether the request says that its body is JSON."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    return _JSON_TYPE.fullmatch(media_type) is not None


def json_object(request: Request, body: bytes) -> Mapping[str, Any]:
    """The JSON object in the body. A body of another content type counts as ``{}``."""
    if not is_json(request):
        return {}
    value = parse_json(body)
    if not isinstance(value, dict):
        raise InvalidInputError("the body must be a JSON object")
    return value


def parse_json(body: bytes) -> Any:
    """Strict JSON in UTF-8: no NaN or infinities, no repeated key, no nesting beyond what can be parsed."""
    try:
        return json.loads(
            body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_object_without_repeats
        )
    except UnicodeDecodeError:
        raise InvalidInputError("the body is not valid UTF-8") from None
    except _NotJsonError as error:
        raise InvalidInputError(str(error)) from None
    except RecursionError:
        raise InvalidInputError("the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"the body is not valid JSON (line {error.lineno}, column {error.colno})"
        ) from None
    except ValueError:
        # Python refuses to read an integer of thousands of digits.
        raise InvalidInputError("the body holds a number that is too long") from None


class _NotJsonError(ValueError):
    """JSON that Python would read but that is not JSON, or not one thing."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"the body is not valid JSON: {name} is not a JSON number")


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _NotJsonError("the body has an object with a repeated key")
    return value
