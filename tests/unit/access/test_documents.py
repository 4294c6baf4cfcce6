"""One document at a time: for stores that can't put access into a query."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from corbits_memory.access.documents import can_access_document, filter_accessible_documents
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core.enums import Effect
from corbits_memory.ports import GrantRule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENG, OPS = "memory.space:eng", "memory.space:ops"


def rule(resource: str, effect: Effect = Effect.ALLOW, action: str = "search") -> GrantRule:
    return GrantRule(
        id=f"{effect}:{action}:{resource}",
        principal_id="bob",
        resource=resource,
        action=action,
        effect=effect,
    )


@dataclass(frozen=True)
class Document:
    created_by_principal_id: str | None
    access_tags: tuple[str, ...]


@pytest.mark.parametrize(
    ("rules", "creator", "tags", "seen"),
    [
        ([], "bob", (), True),
        ([rule(ENG, Effect.DENY)], "bob", (ENG,), True),
        ([], "ann", (ENG,), False),
        ([rule(ENG)], "ann", (OPS, ENG), True),
        ([rule(ENG)], "ann", (), False),
        ([rule(ENG, action="add")], "ann", (ENG,), False),
        ([rule(ENG, Effect.ASK)], "ann", (ENG,), False),
        ([rule(ENG), rule(OPS, Effect.DENY)], "ann", (ENG, OPS), False),
        ([rule(ENG), rule("memory.*", Effect.DENY)], "ann", (ENG, OPS), True),
        ([rule("*")], None, (ENG,), True),
        ([], None, (ENG,), False),
        ([], "", (ENG,), False),
    ],
)
async def test_the_creator_or_whoever_a_grant_lets(
    rules: list[GrantRule], creator: str | None, tags: tuple[str, ...], seen: bool
) -> None:
    for grants in (rules, InMemoryGrantStore(rules)):
        assert (
            await can_access_document(
                grants,
                tenant_id="acme",
                principal_id="bob",
                created_by_principal_id=creator,
                access_tags=tags,
                now=NOW,
            )
            is seen
        )


async def test_without_grants_the_creator_alone() -> None:
    documents = [Document("bob", ()), Document("ann", (ENG,)), Document(None, (ENG,))]
    found = await filter_accessible_documents(None, documents, tenant_id="acme", principal_id="bob", now=NOW)
    assert found == documents[:1]


async def test_filtering_keeps_the_order() -> None:
    documents = [
        Document("ann", (OPS,)),
        Document("ann", (ENG,)),
        Document("bob", ()),
        Document("eve", (ENG,)),
    ]
    found = await filter_accessible_documents(
        [rule(ENG)], documents, tenant_id="acme", principal_id="bob", now=NOW
    )
    assert found == [documents[1], documents[2], documents[3]]
