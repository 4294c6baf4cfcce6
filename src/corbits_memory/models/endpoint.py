"""One model endpoint over HTTP: a POST with a deadline, retries, and errors that hold no secret.

Runs on asyncio. Redirects are not followed, since a key must not travel to a place that nobody configured.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
import stamina

from corbits_memory.config import is_http_url
from corbits_memory.core.instants import retry_after_seconds
from corbits_memory.core.limits import ERROR_BODY_CHARS
from corbits_memory.errors import (
    ChatHttpError,
    ChatTimeoutError,
    ConfigError,
    EmbedHttpError,
    EmbedTimeoutError,
    RerankHttpError,
    RerankTimeoutError,
)
from corbits_memory.models.redaction import redact

DEFAULT_TIMEOUT_MS = 10_000
ATTEMPTS = 4
ANSWER_BYTES = 256 * 1024 * 1024
ERROR_BODY_BYTES = 16 * 1024
"""How much of an error's body is read at all; more than is shown, so that what is cut is cut after redaction."""
TOO_MANY_REQUESTS = 429

LOOPBACK_MOUNTS = ("all://localhost", "all://127.0.0.1", "all://[::1]")

HttpErrorType = type[EmbedHttpError] | type[RerankHttpError] | type[ChatHttpError]
TimeoutErrorType = type[EmbedTimeoutError] | type[RerankTimeoutError] | type[ChatTimeoutError]
T = TypeVar("T")


class AnswerError(Exception):
    """The answer is not what the protocol says; the text names the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The errors and names of one kind of endpoint."""

    noun: str
    variables: str
    http_error: HttpErrorType
    timeout_error: TimeoutErrorType


EMBEDDING = Family(
    noun="embedding endpoint",
    variables="EMBED",
    http_error=EmbedHttpError,
    timeout_error=EmbedTimeoutError,
)
RERANKING = Family(
    noun="reranking endpoint",
    variables="RERANK",
    http_error=RerankHttpError,
    timeout_error=RerankTimeoutError,
)
CHAT = Family(
    noun="chat endpoint",
    variables="DISTILL",
    http_error=ChatHttpError,
    timeout_error=ChatTimeoutError,
)


class Endpoint:
    """Posts JSON to one URL and parses what comes back."""

    def __init__(
        self, *, family: Family, base_url: str, path: str, api_key: str | None, timeout_ms: int | None
    ) -> None:
        self._family = family
        self._url, self._auth = _target(base_url, path, family)
        self._key = api_key
        self._timeout_ms = timeout_ms or DEFAULT_TIMEOUT_MS
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    @property
    def label(self) -> str:
        """The URL as messages show it: without user, password and query."""
        return str(self._url.copy_with(query=None))

    @property
    def timeout_seconds(self) -> float:
        return self._timeout_ms / 1_000

    async def post(
        self, body: Mapping[str, Any], parse: Callable[[Any], T], *, private: Sequence[str] = ()
    ) -> T:
        """Send ``body`` and return ``parse(answer)``; ``private`` texts are kept out of messages.

        Tries again after 429, 5xx and connection errors, all within the one time limit.
        """
        if self._closed:
            raise self._family.http_error(f"The client of {self.label} is closed; open the memory again.")
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        client = self._open_client()  # before the clock starts: the first time, certificates are read
        last: list[Exception] = []
        try:
            async with asyncio.timeout(self.timeout_seconds) as limit:
                async for attempt in stamina.retry_context(
                    on=lambda error: _try_again(error, limit, last),
                    attempts=ATTEMPTS,
                    timeout=None,
                    wait_initial=0.1,
                    wait_max=2.0,
                    wait_jitter=0.1,
                ):
                    with attempt:
                        return await self._post_once(client, content, parse, private)
        except TimeoutError:
            # An error that was answered in time says more than the time that ran out after it.
            raise (last[-1] if last else self._timeout_error()) from None
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    async def aclose(self) -> None:
        self._closed = True
        if self._client is not None:
            await self._client.aclose()

    async def _post_once(
        self, client: httpx2.AsyncClient, content: bytes, parse: Callable[[Any], T], private: Sequence[str]
    ) -> T:
        status, headers, answer = await self._send(client, content)
        if not 200 <= status < 300:
            hint = " (redirects are not followed)" if 300 <= status < 400 else ""
            raise self._family.http_error(
                f"The {self._family.noun} {self.label} answered {status}{hint}: "
                f"{self._excerpt(answer, private)}",
                http_status=status,
                retry_after=retry_after_seconds(headers.get("retry-after"), now=datetime.now(UTC)),
            )
        try:
            return parse(_parse_json(answer))
        except AnswerError as problem:
            raise self._family.http_error(
                f"The {self._family.noun} {self.label} answered {status}, but {problem}: check "
                f"{self._family.variables}_API_STYLE and the URL. "
                f"The answer begins: {self._excerpt(answer[:ERROR_BODY_BYTES], private)}",
                http_status=status,
            ) from None

    async def _send(self, client: httpx2.AsyncClient, content: bytes) -> tuple[int, httpx2.Headers, bytes]:
        try:
            async with client.stream("POST", self._url, content=content) as response:
                ok = response.is_success
                answer = await read_body(response, ANSWER_BYTES if ok else ERROR_BODY_BYTES)
                return response.status_code, response.headers, answer
        except httpx2.HTTPError as error:
            reason = self._redact(str(error), ())[:200]
            raise self._family.http_error(
                f"The {self._family.noun} {self.label} can't be reached: {type(error).__name__} {reason}".rstrip()
            ) from None

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            headers = {"content-type": "application/json", "accept": "application/json"}
            if self._key:
                headers["authorization"] = f"Bearer {self._key}"
            self._client = httpx2.AsyncClient(
                headers=headers,
                auth=None if self._key else self._auth,
                timeout=None,  # the one limit is that of post()
                follow_redirects=False,
                # A proxy of the environment is for the world, not for a server on this machine.
                mounts=dict.fromkeys(LOOPBACK_MOUNTS),
            )
        return self._client

    def _timeout_error(self) -> Exception:
        return self._family.timeout_error(
            f"The {self._family.noun} {self.label} did not answer within {self._timeout_ms} ms: "
            f"raise {self._family.variables}_TIMEOUT_MS or look at the endpoint."
        )

    def _excerpt(self, body: bytes, private: Sequence[str]) -> str:
        # Twice what is shown, so that what is cut is cut after redaction.
        text = body.decode("utf-8", "replace")[: 2 * ERROR_BODY_CHARS + len(self._key or "")]
        text = self._redact(text, private).strip()
        return text[:ERROR_BODY_CHARS] or "(no body)"

    def _redact(self, text: str, private: Sequence[str]) -> str:
        if self._key:
            text = text.replace(self._key, "***")
        return redact(text, private)


def _target(base_url: str, path: str, family: Family) -> tuple[httpx2.URL, httpx2.BasicAuth | None]:
    """The URL to call, and the credentials that stood in it (they never appear in a message or a log)."""
    try:
        if not is_http_url(base_url):
            raise httpx2.InvalidURL("not an HTTP URL")
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ConfigError(
            f"{family.variables}_BASE_URL is not a URL that can be called: write http:// or https:// and a host."
        ) from None
    auth = httpx2.BasicAuth(url.username, url.password) if url.userinfo else None
    return url.copy_with(username=None, password=None, fragment=None, path=_join(url.path, path)), auth


def _join(base: str, path: str) -> str:
    """``/x/`` and ``/v1/y`` make ``/x/v1/y``; a base that already ends in the version isn't given it twice."""
    base = base.rstrip("/")
    version = re.match(r"/v[0-9]+(?=/)", path)
    if version and base.endswith(version[0]):
        path = path[version.end() :]
    return base + path


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """At most ``limit`` bytes of the body; the rest of an endless one is left unread."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size >= limit:
            break
    return b"".join(chunks)[:limit]


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError("the answer is not JSON") from None


def _try_again(error: Exception, limit: asyncio.Timeout, last: list[Exception]) -> bool | float:
    """Whether to send again, or after how many seconds; remembers the error in ``last``."""
    if not isinstance(error, (EmbedHttpError, RerankHttpError, ChatHttpError)):
        return False
    status = error.http_status
    if status is not None and status != TOO_MANY_REQUESTS and status < 500:
        return False
    last.append(error)
    if error.retry_after is None:
        return True
    until = limit.when()
    if until is not None and asyncio.get_running_loop().time() + error.retry_after >= until:
        return False
    return error.retry_after
