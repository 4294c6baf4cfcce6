"""A server, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import stamina
from stamina.instrumentation import LoggingOnRetryHook

from corbits_memory.cli.backend import Json
from corbits_memory.cli.output import note
from corbits_memory.errors import ConfigError, InvalidInputError, MemoryError, UpstreamError
from corbits_memory.wire.events import ServerEvent, read_events

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 120.0
ATTEMPTS = 5
SILENT_SECONDS, AGAIN_SECONDS = 35.0, 1.0
"""A stream says something every ten seconds, or is broken."""
_REFUSALS = frozenset(
    {"unauthorized", "principal_required", "forbidden", "tenant_mismatch", "invalid_cursor"}
)
_AGAIN = frozenset({429, 502, 503})


class ServerError(UpstreamError):
    """The server can't be reached, or answered with an error."""

    code = "server"


class _PassingError(ServerError):
    """Worth another attempt, where the request may be repeated."""


class RemoteBackend:
    """One tenant of one server; the token says who acts."""

    def __init__(self, client: httpx2.AsyncClient, *, tenant: str) -> None:
        self._client = client
        self._tenant = tenant
        self._reached = False
        self._prefix = f"/api/tenants/{quote(tenant, safe='')}/memory"

    async def add_batch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Json]:
        # What has a name of its own may be sent again: the same once more changes nothing.
        named = all(body.get("external_ref") for body in bodies)
        try:
            answer = await self._send("POST", "/add/batch", repeatable=named, json={"items": list(bodies)})
        except _TooLargeError as error:
            if len(bodies) > 1:
                half = len(bodies) // 2
                return [*await self.add_batch(bodies[:half]), *await self.add_batch(bodies[half:])]
            told = f"{error.message}, or add it on the server's machine, without --url"
            return [{"error": {"code": error.code, "message": told}}]
        results: list[Json] = answer["results"]
        return results

    async def search(self, body: Mapping[str, Any]) -> Json:
        return await self._send("POST", "/search", repeatable=True, json=dict(body))

    async def list(self, asked: Mapping[str, Any]) -> Json:
        kinds = asked.get("kinds") or ()
        parameters = [(name, str(value)) for name, value in asked.items() if name != "kinds"]
        parameters += [("kinds", kind) for kind in kinds]
        return await self._send("GET", "/list", repeatable=True, params=parameters)

    async def document(self, document_id: str) -> Json:
        return await self._send("GET", f"/documents/{quote(document_id, safe='')}", repeatable=True)

    async def history(self, document_id: str, *, limit: int, before: int | None) -> Json:
        path = f"/documents/{quote(document_id, safe='')}/history"
        parameters = {"limit": limit} | ({} if before is None else {"before": before})
        return await self._send("GET", path, repeatable=True, params=parameters)

    async def version(self, version_id: str, *, after: int | None) -> Json:
        parameters = {} if after is None else {"after": after}
        return await self._send(
            "GET", f"/versions/{quote(version_id, safe='')}", repeatable=True, params=parameters
        )

    async def capabilities(self) -> Json:
        return await self._send("GET", "/capabilities", repeatable=True)

    async def forget(self, document_id: str, *, cascade: bool) -> Json:
        path = f"/documents/{quote(document_id, safe='')}/forget"
        return await self._send("POST", path, repeatable=True, json={"cascade": cascade})

    async def purge(self, document_id: str) -> Json:
        # Once more after it was done would say that there is no such document.
        path = f"/documents/{quote(document_id, safe='')}/purge"
        return await self._send("POST", path, repeatable=False)

    async def feed(self, asked: Mapping[str, Any]) -> Json:
        return await self._send("GET", "/feed", repeatable=True, params=_feed_parameters(asked))

    async def follow(self, asked: Mapping[str, Any]) -> AsyncIterator[Json]:
        parameters, after = _feed_parameters({**asked, "after": None}), int(asked["after"])
        while True:
            try:
                async for told in self._stream("/feed/stream", params=[*parameters, ("after", str(after))]):
                    after = int(told.id or after)
                    if told.data:
                        yield json.loads(told.data)
            except _PassingError as error:
                # A server that never answered is told of at once; one that restarts is waited for.
                if not self._reached:
                    raise
                note(f"{error.message} Trying again.")
            await asyncio.sleep(AGAIN_SECONDS)

    async def subscribe(self, body: Mapping[str, Any]) -> Json:
        return await self._send("POST", "/subscriptions", repeatable=False, json=dict(body))

    async def subscriptions(self) -> Json:
        return await self._send("GET", "/subscriptions", repeatable=True)

    async def unsubscribe(self, subscription_id: str) -> Json:
        return await self._send("DELETE", _of(subscription_id), repeatable=False)

    async def dead_letters(self, subscription_id: str, *, after: int, limit: int) -> Json:
        path, page = _of(subscription_id, "/dead"), {"after": str(after), "limit": str(limit)}
        return await self._send("GET", path, repeatable=True, params=page)

    async def replay(self, subscription_id: str, seqs: Sequence[int] | None) -> Json:
        return await self._send(
            "POST", _of(subscription_id, "/replay"), repeatable=False, json={"seqs": seqs}
        )

    async def ask(self, method: str, path: str, *, repeatable: bool, **content: Any) -> Json:
        """One request below the tenant's prefix, for commands that only a server's operators use."""
        return await self._send(method, path, repeatable=repeatable, **content)

    async def _stream(self, path: str, **content: Any) -> AsyncIterator[ServerEvent]:
        """The events of one connection, until it ends. Raises ``ServerError``."""
        timeout = httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        try:
            async with self._client.stream("GET", self._prefix + path, timeout=timeout, **content) as answer:
                self._reached = True
                if not answer.is_success:
                    await answer.aread()
                    raise self._refusal(answer)
                async for told in read_events(answer.aiter_lines()):
                    if told.name == "error":
                        raise _told_error(told)
                    yield told
        except httpx2.TransportError as error:
            raise _PassingError(
                f"The connection to {self._client.base_url} broke ({type(error).__name__})."
            ) from error

    async def _send(self, method: str, path: str, *, repeatable: bool, **content: Any) -> Json:
        # A server that has answered before is worth waiting for; one that never did is told of at once.
        attempts = ATTEMPTS if repeatable and self._reached else 1
        async for attempt in stamina.retry_context(
            on=_PassingError, attempts=attempts, timeout=60, wait_initial=0.2, wait_max=5
        ):
            with attempt:
                return await self._send_once(method, path, **content)
        raise AssertionError("the retry loop returns or raises")

    async def _send_once(self, method: str, path: str, **content: Any) -> Json:
        try:
            response = await self._client.request(method, self._prefix + path, **content)
        except UnicodeEncodeError:
            raise InvalidInputError("the input holds bytes that are not UTF-8 text") from None
        except httpx2.TimeoutException as error:
            raise _PassingError(f"The server at {self._client.base_url} did not answer in time.") from error
        except httpx2.TransportError as error:
            raise _PassingError(
                f"The server at {self._client.base_url} can't be reached ({type(error).__name__}): "
                "is `corbits-memory serve` running there?"
            ) from error
        self._reached = True
        if response.is_success:
            return _json(response)
        raise self._refusal(response)

    def _refusal(self, response: httpx2.Response) -> MemoryError:
        told = _json(response, quiet=True).get("error")
        error = told if isinstance(told, dict) else {}
        message = str(error.get("message") or response.reason_phrase)
        if response.status_code == 401:
            return ServerError("The server does not know this token, or it was revoked or has expired.")
        if error.get("code") == "tenant_mismatch":
            return ServerError(f"The token is not for the tenant {self._tenant}: name its own with --tenant.")
        if response.status_code == 413:
            return _TooLargeError(message)
        kind = _PassingError if response.status_code in _AGAIN else ServerError
        return kind(f"The server answered {response.status_code}: {message}", details=error.get("details"))


def _of(subscription_id: str, path: str = "") -> str:
    return f"/subscriptions/{quote(subscription_id, safe='')}{path}"


def _feed_parameters(asked: Mapping[str, Any]) -> list[tuple[str, str]]:
    given = [(name, str(asked[name])) for name in ("after", "limit", "exclude_generator") if asked.get(name)]
    given += [("ops", word) for word in asked.get("ops") or ()]
    return [*given, ("include", "text")] if asked.get("include_text") else given


def _told_error(told: ServerEvent) -> ServerError:
    """Why the server ended a stream; what is no refusal passes."""
    error = json.loads(told.data)["error"]
    kind = ServerError if error["code"] in _REFUSALS else _PassingError
    return kind(f"The server ended the stream: {error['message']}")


class _TooLargeError(ServerError):
    """The request is larger than the server takes at once."""

    code = "too_large"


@asynccontextmanager
async def open_remote(url: str, *, token: str, tenant: str) -> AsyncIterator[RemoteBackend]:
    if not url.startswith(("http://", "https://")):
        raise ConfigError("--url must begin with http:// or https://, like http://127.0.0.1:8765")
    try:
        client = httpx2.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
        )
    except (httpx2.InvalidURL, ValueError):
        raise ConfigError(
            "--url or --token can't be used: one of them holds a character that it may not."
        ) from None
    # Its own default would print each retry.
    stamina.instrumentation.set_on_retry_hooks([LoggingOnRetryHook])
    async with client:
        yield RemoteBackend(client, tenant=tenant)


def _json(response: httpx2.Response, *, quiet: bool = False) -> Json:
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    if quiet:
        return {}
    raise ServerError(f"What answers at {response.request.url.host} is not a Corbits Memory server.")
