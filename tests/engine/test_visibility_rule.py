"""One rule says who sees a row, in three forms: as a condition spelt out, as a function, and in Python."""

import random
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from corbits_memory.engine.access import visibility_scope
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import Visibility
from tests.engine.support import T, add, note

TAGS = [f"memory.space:{number}" for number in range(12)]
MANY = frozenset(f"memory.space:other{number}" for number in range(100))
"""So many that they are looked up as keys."""
OWNERS = ("ann", "bob", "eve")


def some(draw: random.Random, *, most: int = 4) -> frozenset[str]:
    return frozenset(draw.sample(TAGS, draw.randint(0, most))) | (
        MANY if draw.random() < 0.2 else frozenset()
    )


def draw_visibility(draw: random.Random, documents: list[str]) -> Visibility:
    vetoed = some(draw) if draw.random() < 0.5 else frozenset()
    if draw.random() < 0.3:
        vetoed |= {f"memory.doc:{draw.choice(documents)}"}
    return Visibility(
        principal_id=draw.choice(OWNERS),
        allowed=some(draw),
        everything=draw.random() < 0.3,
        refused=some(draw, most=8),
        vetoed=vetoed,
    )


ROWS = "SELECT document_id::text, owner_id::text, access_tags::text[] FROM memory.search_row"
BY_FUNCTION = """
SELECT r.document_id FROM memory.search_row r WHERE memory.reaches(
  r.owner_id, r.access_tags, r.document_id, %(s)s ->> 'principal', %(s)s ? 'everything',
  memory.lookup(%(s)s -> 'allowed'),
  CASE WHEN %(s)s ? 'documents' THEN memory.lookup(%(s)s -> 'documents') END,
  memory.lookup(%(s)s -> 'refused'), memory.lookup(%(s)s -> 'vetoed'))
"""


async def test_all_forms_of_the_rule_agree(
    store: PostgresDocumentStore, owner: psycopg.AsyncConnection[Any]
) -> None:
    draw = random.Random(11)
    for number in range(40):
        tags = tuple(draw.sample(TAGS, draw.randint(0, 3)))
        made = note(f"n{number}", external_ref=f"r{number}", access_tags=tags)
        await add(store, made, principal=draw.choice(OWNERS))
    await owner.execute("SELECT set_config('memory.tenant_id', %s, false)", [T])
    rows = await (await owner.execute(ROWS)).fetchall()
    seen = set()
    for _ in range(150):
        visibility = draw_visibility(draw, [document_id for document_id, _, _ in rows])
        asked = {**await visibility_scope(owner, visibility), "generation": "g0", "statuses": ["active"]}
        if draw.random() < 0.2 and not visibility.everything:
            # What very many tags reach comes as documents.
            reached = [d for d, _, tags in rows if visibility.allowed.intersection(tags)]
            asked["documents"] = reached + [f"doc_{n}" for n in range(draw.choice((0, 100)))]
            asked.pop("allowed", None)
        scope = Jsonb(asked)
        (predicate,) = await found(owner, "SELECT memory.scope_predicate(%(s)s)", scope)
        spelt = await found(owner, f"SELECT r.document_id FROM memory.search_row r WHERE {predicate}")
        in_python = {d for d, name, tags in rows if visibility.admits(owner=name, tags=tags, document_id=d)}
        assert spelt == await found(owner, BY_FUNCTION, scope) == in_python, visibility
        seen.add(len(in_python))
    assert len(seen) > 10


async def found(owner: psycopg.AsyncConnection[Any], query: str, scope: Jsonb | None = None) -> set[Any]:
    """The first column."""
    cursor = await owner.execute(query.encode(), None if scope is None else {"s": scope})
    return {row[0] for row in await cursor.fetchall()}
