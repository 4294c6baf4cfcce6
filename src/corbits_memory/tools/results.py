"""What a tool answers: one JSON text, a result or an error that a model can act on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from corbits_memory.client.errors import ServerError
from corbits_memory.errors import MemoryError

DETAIL_CHARS = 512
PROBLEMS = 10
RESULT_CHARS = 256_000
"""About 64,000 tokens: more would push everything else out of a model's sight."""

_HINTS = {
    "unauthorized": "The token is not valid. Calling again will not help; tell the user.",
    "principal_required": "The token is not valid. Calling again will not help; tell the user.",
    "forbidden": "You may not do this. Calling again will not help; tell the user.",
    "tenant_mismatch": "The token is for another tenant. Tell the user.",
    "not_found": "Take ids from memory_search or memory_list; it may be gone, or not yours to see.",
    "too_large": "Save it in smaller parts.",
    "rate_limited": "Wait before calling again.",
    "invalid_cursor": "Begin again with after 0.",
    "durable_document": "It is kept on purpose; tell the user.",
    "unreachable": "The memory server is down. Go on without memory, and tell the user.",
    "timeout": "The memory server is slow. Try again later.",
    "invalid_answer": "The address is not of a memory server. Tell the user.",
    "redirected": "The address has moved. Tell the user.",
    "answer_too_large": "Ask for less: a smaller limit.",
    "result_too_large": "Ask for less: a smaller limit or max_tokens.",
    "invalid_arguments": "Correct the arguments and call again.",
    "invalid_input": "Correct the arguments and call again.",
}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``text`` is the JSON of ``data``. An error is ``{"error": {"code", "message", …}}``."""

    text: str
    data: dict[str, Any]
    is_error: bool = False


def result(data: dict[str, Any], *, most: int = RESULT_CHARS) -> ToolResult:
    """The answer as it came; an error when it is longer than ``most`` characters."""
    text = _dumped(data)
    if len(text) > most:
        return error("result_too_large", f"the result has {len(text):,} characters, more than {most:,}")
    return ToolResult(text, data)


def error(
    code: str,
    message: str,
    *,
    status: int | None = None,
    details: Any = None,
    retry_after: float | None = None,
) -> ToolResult:
    told: dict[str, Any] = {"code": code, "message": message}
    if status is not None:
        told["status"] = status
    if isinstance(details, Sequence) and details:
        told["details"] = list(details[:PROBLEMS])
    if retry_after is not None:
        told["retryAfter"] = retry_after
    if code in _HINTS:
        told["hint"] = _HINTS[code]
    return _failed(told)


def failure(failed: Exception) -> ToolResult:
    """The one error for whatever went wrong."""
    if not isinstance(failed, MemoryError):
        # Its text may hold anything.
        return error("internal", f"the tool failed: {type(failed).__name__}")
    message = failed.message
    if failed.http_status is not None:
        message = f"memory HTTP {failed.http_status}: {_clipped(message)}"
    elif not isinstance(failed, ServerError):
        message = _clipped(message)
    return error(
        failed.code,
        message,
        status=failed.http_status,
        details=failed.details,
        retry_after=failed.retry_after,
    )


def bad_arguments(found: ValidationError) -> ToolResult:
    """Names the fields and what is wrong with them, never what was sent."""
    problems = [
        {
            "field": ".".join(str(part) for part in problem["loc"] if part != "list[str]"),
            "problem": problem["msg"],
        }
        for problem in found.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = "; ".join(f"{p['field']}: {p['problem']}" for p in problems[:3])
    return error("invalid_arguments", first or "the arguments must be an object", details=problems)


def _failed(told: dict[str, Any]) -> ToolResult:
    data = {"error": told}
    return ToolResult(_dumped(data), data, is_error=True)


def _dumped(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= DETAIL_CHARS else text[:DETAIL_CHARS] + "…"
