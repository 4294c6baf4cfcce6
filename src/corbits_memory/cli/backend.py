"""What a verb talks to: a memory opened here, or a server. Both answer in the wire's JSON."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from corbits_memory.errors import ConfigError

URL = "CORBITS_MEMORY_URL"
TOKEN = "CORBITS_MEMORY_TOKEN"  # noqa: S105 - the name of a variable

Json = dict[str, Any]


class Loader(Protocol):
    """What an import needs."""

    async def add_batch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Json]:
        """One add answer, or ``{"error": …}``, a body, in order."""

    async def capabilities(self) -> Json: ...


class Backend(Loader, Protocol):
    """The verbs that commands need."""

    async def search(self, body: Mapping[str, Any]) -> Json: ...

    async def list(self, asked: Mapping[str, Any]) -> Json: ...

    async def document(self, document_id: str) -> Json: ...

    async def history(self, document_id: str, *, limit: int, before: int | None) -> Json: ...

    async def version(self, version_id: str, *, after: int | None) -> Json: ...


class FeedBackend(Backend, Protocol):
    """And the feed."""

    async def feed(self, asked: Mapping[str, Any]) -> Json:
        """A page; ``asked`` holds what :meth:`corbits_memory.Memory.feed` takes."""

    def follow(self, asked: Mapping[str, Any]) -> AsyncIterator[Json]:
        """Entries as they come."""


class FullBackend(FeedBackend, Protocol):
    """And webhooks and erasing."""

    async def subscribe(self, body: Mapping[str, Any]) -> Json: ...

    async def subscriptions(self) -> Json: ...

    async def unsubscribe(self, subscription_id: str) -> Json: ...

    async def dead_letters(self, subscription_id: str, *, after: int, limit: int) -> Json: ...

    async def replay(self, subscription_id: str, seqs: Sequence[int] | None) -> Json: ...

    async def forget(self, document_id: str, *, cascade: bool) -> Json: ...

    async def purge(self, document_id: str) -> Json: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options of a verb that say what it talks to."""

    data_dir: Path | None
    database_url: str | None
    url: str | None
    token: str | None = field(repr=False)
    tenant: str
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server, and what it knows the caller by."""

    url: str
    token: str = field(repr=False)


def remote_of(target: Target, environ: Mapping[str, str]) -> Remote | None:
    """The server that the options, and after them the environment, name; None: a database is asked for.

    Raises ``ConfigError`` when both are, or the server's token is missing.
    """
    direct = target.data_dir is not None or target.database_url is not None
    url = target.url or (None if direct else environ.get(URL, "").strip() or None)
    if url is None:
        return None
    if direct:
        from corbits_memory.server.places import AmbiguousDatabaseError

        raise AmbiguousDatabaseError(
            "--url names a server, and --data-dir or --database-url a database: leave one out."
        )
    token = target.token or environ.get(TOKEN, "").strip()
    if not token:
        raise ConfigError(f"The server at {url} needs a token: set {TOKEN}, or give --token.")
    return Remote(url=url, token=token)


@asynccontextmanager
async def open_backend(
    target: Target, environ: Mapping[str, str], *, run_worker: bool = False
) -> AsyncIterator[FullBackend]:
    """The backend that the options, and after them the environment, ask for.

    ``run_worker`` has a memory that is opened here fill in vectors meanwhile; a server does so anyway.
    """
    server = remote_of(target, environ)
    if server is None:
        from corbits_memory.cli.direct import open_direct

        async with open_direct(target, environ, run_worker=run_worker) as backend:
            yield backend
        return
    from corbits_memory.cli.remote import open_remote

    async with open_remote(server.url, token=server.token, tenant=target.tenant) as remote:
        yield remote
