"""One vendor's HTTP API: a POST with a deadline, retries that can't double a write, errors that hold no secret."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx2
import stamina

from corbits_memory.config import is_http_url
from corbits_memory.core.instants import retry_after_seconds
from corbits_memory.errors import (
    AnsweredError,
    ConfigError,
    InvalidInputError,
    UnavailableError,
    UpstreamError,
)
from corbits_memory.models.endpoint import ERROR_BODY_BYTES, LOOPBACK_MOUNTS, read_body
from corbits_memory.models.redaction import redact

TIMEOUT_SECONDS = 10.0
ATTEMPTS = 4
ANSWER_BYTES = 16 * 1024 * 1024
UNAUTHORIZED = frozenset({401, 403})
TOO_MANY_REQUESTS = 429
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")


class VendorError(UpstreamError):
    """A service behind one of the memory's ports failed; try again later."""

    code = "vendor_failed"


class VendorTimeoutError(VendorError):
    """A service behind one of the memory's ports did not answer in time."""

    code = "vendor_timeout"


class VendorHttpError(VendorError, AnsweredError):
    """A service behind one of the memory's ports answered with an error, or not as it documents."""

    code = "vendor_http"


class _UnreachableError(VendorError):
    """Never reached the service, so nothing of it was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A vendor's name, how its key is sent, and how its errors are told."""

    name: str
    scheme: str
    """What stands before the key in the header ``authorization``."""
    told: str
    """With ``{call}``, ``{status}`` and ``{body}``."""
    body_chars: int


class VendorApi:
    """Posts JSON to a vendor. Redirects are not followed: the key goes where it was configured to go."""

    def __init__(
        self,
        vendor: Vendor,
        *,
        key: str,
        base_url: str,
        timeout_seconds: float,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        """Raises ``ConfigError`` for what can't be used; it repeats no key."""
        if not _HEADER_VALUE.fullmatch(key or ""):
            raise ConfigError(f"{vendor.name} needs its key: printable ASCII without spaces")
        if not is_http_url(base_url):
            raise ConfigError(f"{vendor.name}: base_url must begin with http:// or https:// and name a host")
        if not timeout_seconds > 0:
            raise ConfigError(f"{vendor.name}: timeout_seconds must be above 0")
        self._vendor = vendor
        self._key = key
        self._base_url = base_url.rstrip("/")
        self._timeout = timeout_seconds
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    async def post(
        self, path: str, body: Mapping[str, Any], *, call: str, repeatable: bool, private: Sequence[str] = ()
    ) -> Any:
        """The JSON that is answered; None for an answer without a body. ``call`` names it in messages.

        Tries again within the time limit: after 429 and when the service was never reached; what is ``repeatable``
        also after other failures. ``private`` texts are kept out of messages. Raises ``VendorError``.
        """
        if self._closed:
            raise UnavailableError(f"this client of {self._vendor.name} is closed; create a new one")
        try:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (UnicodeEncodeError, ValueError):
            raise InvalidInputError(f"the input holds what can't be sent to {self._vendor.name}") from None
        client = self._open_client()  # before the clock starts: the first time, certificates are read
        retries = _Retries(until=time.monotonic() + self._timeout, repeatable=repeatable)
        try:
            with anyio.fail_after(self._timeout):
                async for attempt in stamina.retry_context(
                    on=retries.again,
                    attempts=ATTEMPTS,
                    timeout=None,
                    wait_initial=0.1,
                    wait_max=2.0,
                    wait_jitter=0.1,
                ):
                    with attempt:
                        return await self._post_once(client, path, content, call, private)
        except TimeoutError:
            # An error that was answered in time says more than the time that ran out after it.
            raise (
                retries.last
                or VendorTimeoutError(f"{self._vendor.name} did not answer {call} within {self._timeout:g} s")
            ) from None
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    async def aclose(self) -> None:
        self._closed = True
        if self._client is not None:
            await self._client.aclose()

    async def _post_once(
        self, client: httpx2.AsyncClient, path: str, content: bytes, call: str, private: Sequence[str]
    ) -> Any:
        try:
            async with client.stream("POST", self._base_url + path, content=content) as response:
                most = ANSWER_BYTES if response.is_success else ERROR_BODY_BYTES
                answer = await read_body(response, most)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _UnreachableError(self._unreachable(error)) from None
        except httpx2.HTTPError as error:
            raise VendorError(self._unreachable(error)) from None
        status = response.status_code
        if not response.is_success:
            raise VendorHttpError(
                self._told(call, status, answer, private),
                http_status=status,
                retry_after=retry_after_seconds(response.headers.get("retry-after"), now=datetime.now(UTC)),
            )
        if not answer.strip():
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise VendorHttpError(
                f"{self._vendor.name} answered {call} with {status}, but not with JSON: check the URL",
                http_status=status,
            ) from None

    def _told(self, call: str, status: int, answer: bytes, private: Sequence[str]) -> str:
        # Twice what is shown, so that what is cut is cut after redaction.
        text = answer.decode("utf-8", "replace")[: 2 * self._vendor.body_chars + len(self._key)]
        text = redact(text.replace(self._key, "***"), private)
        text = " ".join(text.split())[: self._vendor.body_chars] or "(no body)"
        if 300 <= status < 400:
            text = f"{text} (redirects are not followed)"
        if status in UNAUTHORIZED:
            text = f"{text} (the key is not accepted)"
        return self._vendor.told.format(call=call, status=status, body=text)

    def _unreachable(self, error: Exception) -> str:
        return f"{self._vendor.name} can't be reached: {type(error).__name__}"

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers={
                    "content-type": "application/json",
                    "accept": "application/json",
                    "authorization": f"{self._vendor.scheme} {self._key}".strip(),
                    "user-agent": "corbits-memory",
                },
                timeout=None,  # the one limit is that of post()
                follow_redirects=False,
                transport=self._transport,
                # A proxy of the environment is for the world, not for a server on this machine.
                mounts=dict.fromkeys(LOOPBACK_MOUNTS) if self._transport is None else None,
            )
        return self._client


@dataclass(slots=True, kw_only=True)
class _Retries:
    """Whether to send again, and what went wrong last."""

    until: float
    repeatable: bool
    last: VendorError | None = None

    def again(self, error: Exception) -> bool | float:
        if not isinstance(error, VendorError):
            return False
        self.last = error
        if isinstance(error, _UnreachableError):
            return True
        if not isinstance(error, VendorHttpError):
            return self.repeatable
        status = error.http_status or 0
        if status != TOO_MANY_REQUESTS and not (self.repeatable and status >= 500):
            return False
        if error.retry_after is None:
            return True
        return error.retry_after if time.monotonic() + error.retry_after < self.until else False
