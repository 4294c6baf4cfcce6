"""Who is said to have made a document."""

from dataclasses import replace

from corbits_memory.adapters.linear import issue_change
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidInputError, MemoryError
from corbits_memory.plane import Memory
from corbits_memory.wire.requests import add_input
from tests.engine.support import P, T


async def test_what_an_adapter_adds_nobody_said(store: PostgresDocumentStore) -> None:
    """Code in the process may say who made a document; what comes in by a door may not."""
    async with Memory(store) as memory:
        change = issue_change(
            {
                "type": "Issue",
                "action": "create",
                "data": {"identifier": "ENG-1", "title": "Deploy", "description": "Never on Fridays."},
            }
        )
        assert change is not None
        forged = add_input({"title": "Forged", "text": "Never on Mondays.", "created_by_kind": "adapter"})
        added = await memory.add_batch(tenant_id=T, principal_id=P, items=[change.document, forged])
        assert not [answer for answer in added if isinstance(answer, MemoryError)]
        found = await memory.search(tenant_id=T, principal_id=P, query="never")
        made = {item.title: item.attribution for item in found.items}
        kinds = {title: told.created_by_kind for title, told in made.items() if told is not None}
        assert kinds == {"Deploy": "adapter", "Forged": "human"}
        (refused,) = await memory.add_batch(
            tenant_id=T, principal_id=P, items=[replace(change.document, created_by_kind="god")]
        )
        assert isinstance(refused, InvalidInputError)
        assert "created_by_kind" in refused.message
