"""Linear's GraphQL API."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import httpx2

from corbits_memory.adapters.vendor import TIMEOUT_SECONDS, Vendor, VendorApi, VendorError
from corbits_memory.models.redaction import redact

URL = "https://api.linear.app/graphql"
LINEAR = Vendor(
    name="Linear", scheme="Bearer", told="Linear {call} failed: HTTP {status}: {body}", body_chars=300
)
PERSONAL = "lin_api_"
"""How personal keys begin; they are sent without a scheme."""
MESSAGE_CHARS = 300


class LinearError(VendorError):
    """Linear refused the request."""

    code = "linear_refused"


class LinearApi:
    """Sends operations; close it after use."""

    def __init__(
        self,
        *,
        access_token: str,
        base_url: str = URL,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """``access_token``: OAuth's, or a personal key. Raises ``ConfigError``. No I/O."""
        personal = (access_token or "").startswith(PERSONAL)
        self._api = VendorApi(
            replace(LINEAR, scheme="") if personal else LINEAR,
            key=access_token,
            base_url=base_url,
            timeout_seconds=timeout_seconds,
            transport=transport,
        )

    async def run(
        self,
        operation: str,
        document: str,
        variables: Mapping[str, Any],
        *,
        repeatable: bool = True,
        private: Sequence[str] = (),
    ) -> Any:
        """What stands under ``data`` and the operation's name. Raises ``VendorError``, ``LinearError`` for ``errors``.

        Data beside errors is not used: nobody could tell what is missing from it.
        """
        answer = await self._api.post(
            "",
            {"query": document, "variables": variables},
            call=operation,
            repeatable=repeatable,
            private=private,
        )
        if not isinstance(answer, Mapping):
            raise LinearError(f"Linear answered {operation} with something that is no result")
        if answer.get("errors"):
            raise LinearError(_refusal(operation, answer["errors"], private))
        data = answer.get("data")
        found = data.get(operation) if isinstance(data, Mapping) else None
        if found is None:
            raise LinearError(f"Linear answered {operation} with nothing")
        return found

    async def close(self) -> None:
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def nodes_of(connection: Any) -> list[Mapping[str, Any]]:
    """The objects of a connection; raises ``LinearError`` when it is none."""
    nodes = connection.get("nodes") if isinstance(connection, Mapping) else None
    if not isinstance(nodes, list):
        raise LinearError("Linear answered with something that is no list of issues")
    return [node for node in nodes if isinstance(node, Mapping)]


def text_at(found: Any, *path: str) -> str | None:
    """The text under these names, if there is one that is not blank."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) and found.strip() else None


def _refusal(operation: str, errors: Any, private: Sequence[str]) -> str:
    first = errors[0] if isinstance(errors, list) and errors else errors
    code = text_at(first, "extensions", "code") or text_at(first, "extensions", "type") or "error"
    message = text_at(first, "extensions", "userPresentableMessage") or text_at(first, "message") or ""
    told = " ".join(redact(message[: 2 * MESSAGE_CHARS], private).split())[:MESSAGE_CHARS]
    return f"Linear refused {operation} ({code[:100]}): {told}".rstrip(": ")
