"""A server, over HTTP: the client, with the words of a command line."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import stamina
from stamina.instrumentation import LoggingOnRetryHook

from corbits_memory.cli.backend import Json
from corbits_memory.cli.output import note
from corbits_memory.client import MemoryClient, ServerError, routes
from corbits_memory.client.calls import Call, R
from corbits_memory.errors import MemoryError, TenantMismatchError, TooLargeError, UnauthorizedError

ANSWER_SECONDS = 120.0


class RemoteBackend:
    """One tenant of one server; the token says who acts."""

    def __init__(self, client: MemoryClient, *, tenant: str) -> None:
        self._client = client
        self._tenant = tenant

    async def add_batch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Json]:
        try:
            answer = await self._told(routes.add_batch(bodies))
        except TooLargeError as error:
            if len(bodies) > 1:
                half = len(bodies) // 2
                return [*await self.add_batch(bodies[:half]), *await self.add_batch(bodies[half:])]
            told = f"{error.message}, or add it on the server's machine, without --url"
            return [{"error": {"code": error.code, "message": told}}]
        results: list[Json] = answer["results"]
        return results

    async def search(self, body: Mapping[str, Any]) -> Json:
        return await self._told(replace(routes.search(body["query"]), body=body))

    async def list(self, asked: Mapping[str, Any]) -> Json:
        return await self._told(routes.list_documents(**asked))

    async def document(self, document_id: str) -> Json:
        return await self._told(routes.document(document_id))

    async def history(self, document_id: str, *, limit: int, before: int | None) -> Json:
        return await self._told(routes.history(document_id, limit=limit, before=before))

    async def version(self, version_id: str, *, after: int | None) -> Json:
        return await self._told(routes.version(version_id, after=after))

    async def capabilities(self) -> Json:
        return await self._told(routes.capabilities())

    async def forget(self, document_id: str, *, cascade: bool) -> Json:
        return await self._told(routes.forget(document_id, cascade=cascade))

    async def purge(self, document_id: str) -> Json:
        return await self._told(routes.purge(document_id))

    async def feed(self, asked: Mapping[str, Any]) -> Json:
        return await self._told(routes.feed_page(**asked))

    async def follow(self, asked: Mapping[str, Any]) -> AsyncIterator[Json]:
        with self._in_words():
            async for entry in self._client.follow(**asked, on_break=_tell_break):
                yield entry.to_json()

    async def subscribe(self, body: Mapping[str, Any]) -> Json:
        return await self._told(routes.subscribe(**body))

    async def subscriptions(self) -> Json:
        return await self._told(routes.subscriptions())

    async def unsubscribe(self, subscription_id: str) -> Json:
        return await self._told(routes.unsubscribe(subscription_id))

    async def dead_letters(self, subscription_id: str, *, after: int, limit: int) -> Json:
        return await self._told(routes.dead_letters(subscription_id, after=after, limit=limit))

    async def replay(self, subscription_id: str, seqs: Sequence[int] | None) -> Json:
        return await self._told(routes.replay(subscription_id, seqs=seqs))

    async def ask(self, call: Call[R]) -> Json:
        """A request of a command that works on servers and nothing else."""
        return await self._told(call)

    async def _told(self, call: Call[R]) -> Json:
        with self._in_words():
            return (await self._client.send(call)).to_json()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Errors say which option mends them."""
        try:
            yield
        except TenantMismatchError as error:
            raise ServerError(
                f"The token is not for the tenant {self._tenant}: name its own with --tenant."
            ) from error
        except UnauthorizedError as error:
            raise ServerError(
                "The server does not know this token, or it was revoked or has expired."
            ) from error
        except MemoryError as error:
            if error.http_status is not None and not isinstance(error, (TooLargeError, ServerError)):
                raise ServerError(
                    f"The server answered {error.http_status}: {error.message}", details=error.details
                ) from error
            raise


def _tell_break(error: MemoryError) -> None:
    note(f"{error.message} Trying again.")


@asynccontextmanager
async def open_remote(url: str, *, token: str, tenant: str) -> AsyncIterator[RemoteBackend]:
    """Raises ``ConfigError`` when URL, token or tenant can't be used."""
    # Its own default would print each retry.
    stamina.instrumentation.set_on_retry_hooks([LoggingOnRetryHook])
    async with MemoryClient(
        url, tenant=tenant, token=token, timeout=ANSWER_SECONDS, trust_env=False
    ) as client:
        yield RemoteBackend(client, tenant=tenant)
