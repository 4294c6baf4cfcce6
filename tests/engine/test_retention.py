"""Retention: who may forget, purge and set a class; deprecation; the sweep; and all of them at once."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import AddStatus, AuditAction, AuditOutcome, RetentionClass
from corbits_memory.core.erasure import EPHEMERAL_AGE, SOURCE_ONLY_AGE
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    ConflictError,
    DurableDocumentError,
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from corbits_memory.ports import AddResult, ForgetResult, PurgeResult
from tests.engine.support import OpenStore, P, T, add, find, note, titles

Owner = psycopg.AsyncConnection[Any]


def forget(
    store: PostgresDocumentStore, document_id: str, *, by: str = P, **fields: Any
) -> Awaitable[ForgetResult]:
    return store.forget(tenant_id=T, principal_id=by, document_id=document_id, **fields)


def purge(store: PostgresDocumentStore, document_id: str, *, by: str = P) -> Awaitable[PurgeResult]:
    return store.purge(tenant_id=T, principal_id=by, document_id=document_id)


async def rows(owner: Owner, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return await (await owner.execute(query, parameters)).fetchall()


# --- forget ---


async def test_what_was_forgotten_is_found_no_more(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("The vault opens at nine.", external_ref="n1"))
    await add(store, note("The vault opens at ten.", external_ref="n1"))
    assert await forget(store, added.document_id) == ForgetResult(document_id=added.document_id, versions=2)
    assert titles(await find(store, "vault", include_deprecated=True)) == []
    assert await store.list(tenant_id=T, principal_id=P, limit=5) == []
    assert await rows(owner, "SELECT DISTINCT status FROM memory.version") == [("tombstoned",)]
    assert await rows(owner, "SELECT op, seq FROM memory.feed_event ORDER BY seq") == [
        ("upsert", 1),
        ("upsert", 2),
        ("retract", 3),
        ("retract", 4),
    ]
    assert await rows(owner, "SELECT feed_seq, document_count, chunk_count FROM memory.tenant_state") == [
        (4, 1, 0)
    ]


async def test_forgetting_twice_forgets_nothing_more(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("Once."))
    await forget(store, added.document_id)
    before = await rows(owner, "SELECT feed_seq FROM memory.tenant_state")
    assert (await forget(store, added.document_id)).versions == 0
    assert await rows(owner, "SELECT feed_seq FROM memory.tenant_state") == before
    assert await rows(owner, "SELECT count(*) FROM memory.erasure") == [(1,)]


async def test_adding_again_after_forgetting_goes_on_counting(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (first,) = await add(store, note("One.", external_ref="n1", kind="memo"))
    await forget(store, first.document_id)
    assert (await rows(owner, "SELECT external_ref FROM memory.document"))[0][0].startswith("erased:")
    (again,) = await add(store, note("One.", external_ref="n1", kind="memo"))
    assert (again.document_id, again.version, again.status) == (first.document_id, 2, AddStatus.UPDATED)
    assert await rows(owner, "SELECT external_ref, kind, title FROM memory.document") == [
        ("n1", "memo", "Note")
    ]
    assert await rows(owner, "SELECT document_count, chunk_count FROM memory.tenant_state") == [(1, 1)]
    assert titles(await find(store, "one")) == ["Note"]
    assert (await forget(store, first.document_id)).versions == 1


async def test_a_forgotten_name_stays_its_owners(store: PostgresDocumentStore, owner: Owner) -> None:
    (mine,) = await add(store, note("Mine.", external_ref="n1"))
    await forget(store, mine.document_id)
    (answer,) = await store.add(
        tenant_id=T, principal_id="bob", documents=[note("Bob's.", external_ref="n1")]
    )
    assert isinstance(answer, ExternalRefInUseError)
    assert await rows(owner, "SELECT id, left(external_ref, 7) FROM memory.document") == [
        (mine.document_id, "erased:")
    ]


async def test_no_reference_may_look_erased(store: PostgresDocumentStore) -> None:
    (answer,) = await store.add(tenant_id=T, principal_id=P, documents=[note("x", external_ref="erased:abc")])
    assert isinstance(answer, InvalidInputError)
    assert "external_ref" in answer.message


@pytest.mark.parametrize("verb", [forget, purge])
async def test_unknown_and_invisible_are_the_same(store: PostgresDocumentStore, verb: Any) -> None:
    (added,) = await add(store, note("Mine."))
    for document_id, who in ((added.document_id, "bob"), ("kdoc_unknown", P), (added.version_id, P)):
        with pytest.raises(NotFoundError, match="^document not found$"):
            await verb(store, document_id, by=who)


@pytest.mark.parametrize("verb", [forget, purge])
async def test_a_tenant_without_anything_has_nothing_to_forget(
    store: PostgresDocumentStore, verb: Any
) -> None:
    with pytest.raises(NotFoundError):
        await verb(store, "kdoc_unknown")
