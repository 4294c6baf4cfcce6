"""Calls to a store, as the parts of the lifecycle make them."""

import time
from collections.abc import Awaitable, Sequence
from datetime import datetime

from benchmarks.server import PRINCIPAL
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import AddResult, NewDocument, SearchQuery, TextPart, TimelineQuery

TENANT = "lifecycle"


async def add(store: PostgresDocumentStore, *documents: NewDocument) -> list[AddResult]:
    answers = await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=documents)
    refused = [answer for answer in answers if not isinstance(answer, AddResult)]
    if refused:
        raise RuntimeError(f"an add was refused: {refused[0]}")
    return [answer for answer in answers if isinstance(answer, AddResult)]


async def add_all(store: PostgresDocumentStore, texts: Sequence[tuple[str, str]]) -> None:
    for start in range(0, len(texts), 1_000):
        page = texts[start : start + 1_000]
        await add(
            store,
            *(
                NewDocument(title=name, kind="note", external_ref=name, parts=(TextPart(text=text),))
                for name, text in page
            ),
        )


async def search(store: PostgresDocumentStore, question: str, as_of: datetime | None = None) -> object:
    query = SearchQuery(query=question, as_of=as_of)
    return await store.search(tenant_id=TENANT, principal_id=PRINCIPAL, query=query)


async def list_newest(store: PostgresDocumentStore, as_of: datetime | None) -> object:
    return await store.list(tenant_id=TENANT, principal_id=PRINCIPAL, query=TimelineQuery(as_of=as_of))


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
