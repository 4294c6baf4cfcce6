"""Short ways to say what the engine's tests say often."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg

from corbits_memory.config import EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import AddResult, NewDocument, SearchItem, SearchQuery, SearchResult, TextPart

T, P = "acme", "ann"
NOON = datetime(2026, 5, 7, 12, tzinfo=UTC)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
"""What the stores of these tests take for now."""


Owner = psycopg.AsyncConnection[Any]


class OpenStore(Protocol):
    def __call__(
        self, *, embed_url: str | None = None, rerank_url: str | None = None, **config: Any
    ) -> Awaitable[PostgresDocumentStore]: ...


async def opened(url: str) -> PostgresDocumentStore:
    """A lexical-only store on any database; the caller closes it."""
    store = PostgresDocumentStore(
        EngineConfig(database_url=url, run_worker=False, db_pool_max=2), embedder=None, reranker=None
    )
    await store.open()
    return store


def note(text: str, *, title: str = "Note", **fields: Any) -> NewDocument:
    return NewDocument(title=title, parts=(TextPart(text=text),), **fields)


def turn(place: int, text: str, *, author: str = "Ann", thread: str = "t1", **fields: Any) -> NewDocument:
    """The turn at a place of a thread, a minute a turn."""
    return note(
        text,
        title=f"Turn {place}",
        thread=thread,
        author=author,
        occurred_at=NOON + timedelta(minutes=place),
        external_ref=fields.pop("external_ref", f"{thread}:{place}"),
        **fields,
    )


async def add(
    store: PostgresDocumentStore, *documents: NewDocument, tenant: str = T, principal: str = P
) -> list[AddResult]:
    """Add and expect every one to be kept."""
    answers = await store.add(tenant_id=tenant, principal_id=principal, documents=documents)
    refused = [answer for answer in answers if not isinstance(answer, AddResult)]
    assert not refused, refused
    return [answer for answer in answers if isinstance(answer, AddResult)]


async def find(
    store: PostgresDocumentStore, query: str, *, tenant: str = T, principal: str = P, **fields: Any
) -> SearchResult:
    return await store.search(
        tenant_id=tenant, principal_id=principal, query=SearchQuery(query=query, **fields)
    )


def titles(result: SearchResult) -> list[str]:
    return [item.title for item in result.items]


def refs(result: SearchResult) -> list[str]:
    return [item.external_ref for item in result.items]


def first(result: SearchResult) -> SearchItem:
    assert result.items, "nothing was found"
    return result.items[0]


async def until_embedded(store: PostgresDocumentStore, *, seconds: float = 60) -> None:
    """Wait for a running worker to leave nothing pending."""
    async with asyncio.timeout(seconds):
        while await store.pending_vectors(tenant_id=T, principal_id=P):  # noqa: ASYNC110 - another process may do it
            await asyncio.sleep(0.05)


async def until_waiting(owner: Owner, *, count: int = 1) -> None:
    """Wait until so many sessions of this database wait for a lock."""
    async with asyncio.timeout(20):
        while True:
            row = await (
                await owner.execute(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
            ).fetchone()
            if row is not None and row[0] >= count:
                return
            await asyncio.sleep(0.02)
