"""Access inside the engine: what a caller may see as SQL parameters, and changes of a document's tags."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg.rows import TupleRow, dict_row, tuple_row
from psycopg.types.json import Jsonb

from corbits_memory.access.patterns import matcher
from corbits_memory.access.sharing import common_readers, split_audience_widen
from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget
from corbits_memory.core.limits import TAGS_PER_DOCUMENT
from corbits_memory.engine import audit
from corbits_memory.engine.neighbours import embed_anew, followers, lock_rows
from corbits_memory.engine.pool import Connection, Database, Reading, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import retag_vectors
from corbits_memory.errors import ConflictError, ForbiddenError, MemoryError, NotFoundError
from corbits_memory.ports import Access, Visibility

TAGS_PAGE = 10_000
MANY_TAGS = 64
"""More allowed tags than these are looked up once a query, instead of being compared with every row."""
REACHED_DOCUMENTS = 20_000
"""So many documents are named to a query; whoever sees more has tags compared after all, by hash."""


async def resolve_visibility(
    conn: Connection | Reading, tenant_id: str, principal_id: str, access: Access | None
) -> Visibility:
    """What the caller may see, judged with the tenant's tags in use. Without grants: its own documents."""
    if access is None:
        return Visibility(principal_id=principal_id)

    async def known(patterns: Sequence[str]) -> Collection[str]:
        return await known_tags(conn, tenant_id, patterns)

    return await access.visibility(known)


async def visibility_among(tags: Collection[str], principal_id: str, access: Access | None) -> Visibility:
    """What the caller may see of rows at hand that carry no other tags than these. Looks nothing up."""
    if access is None:
        return Visibility(principal_id=principal_id)

    async def known(patterns: Sequence[str]) -> Collection[str]:
        accepts = [matcher(pattern) for pattern in patterns]
        return [tag for tag in tags if any(accept(tag) for accept in accepts)]

    return await access.visibility(known)


async def known_tags(conn: Connection | Reading, tenant_id: str, patterns: Sequence[str]) -> list[str]:
    """The tenant's tags in use that match a pattern in which ``*`` stands for any characters."""
    likes = [_like(pattern) for pattern in patterns]
    found: list[str] = []
    while True:
        parameters = {
            "tenant": tenant_id,
            "patterns": likes,
            "after": found[-1] if found else "",
            "limit": TAGS_PAGE,
        }
        page = [tag for (tag,) in await _rows(conn, "known_tags", parameters)]
        found.extend(page)
        if len(page) < TAGS_PAGE:
            return found


async def visibility_scope(conn: Connection | Reading, visibility: Visibility) -> dict[str, Any]:
    """The keys of visibility in what ``memory.scope_predicate`` reads; an absent key is no grant."""
    scope: dict[str, Any] = {
        "principal": visibility.principal_id,
        "everything": visibility.everything,
        "allowed": sorted(visibility.allowed),
        "refused": sorted(visibility.refused),
        "vetoed": sorted(visibility.vetoed),
    }
    if len(visibility.allowed) > MANY_TAGS:
        parameters = {"tags": scope["allowed"], "most": REACHED_DOCUMENTS}
        ((documents,),) = await _rows(conn, "reachable_documents", parameters)
        if documents is not None:
            # Deprecated versions are judged by their own tags still.
            scope["documents"] = documents
    return {name: value for name, value in scope.items() if value not in (False, [])}


def visibility_parameters(visibility: Visibility) -> dict[str, Any]:
    """The arguments of ``memory.admits`` that say who asks."""
    return {
        "principal": visibility.principal_id,
        "everything": visibility.everything,
        "allowed": sorted(visibility.allowed),
        "refused": sorted(visibility.refused),
        "vetoed": sorted(visibility.vetoed),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChange:
    """From the caller's tags and the system's to what they shall be; both keep their order."""

    add: tuple[str, ...] = ()
    add_system: tuple[str, ...] = ()
    remove: frozenset[str] = frozenset()

    @property
    def narrows(self) -> bool:
        return not self.add and not self.add_system

    def within(
        self, readers: frozenset[str] | None, carried: Sequence[str]
    ) -> tuple["TagChange", tuple[str, ...]]:
        """The change without what would widen the audience, and what that is. ``readers`` None: anybody."""
        if readers is None:
            return self, ()
        kept, refused = split_audience_widen(readers.union(carried), (*self.add, *self.add_system))
        narrowed = replace(
            self,
            add=tuple(tag for tag in self.add if tag in kept),
            add_system=tuple(tag for tag in self.add_system if tag in kept),
        )
        return narrowed, refused

    def apply(self, own: Sequence[str], system: Sequence[str]) -> tuple[list[str], list[str]]:
        kept_own = [tag for tag in own if tag not in self.remove]
        kept_system = [tag for tag in system if tag not in self.remove]
        new_own = list(dict.fromkeys((*kept_own, *self.add)))
        new_system = [t for t in dict.fromkeys((*kept_system, *self.add_system)) if t not in new_own]
        return new_own, new_system


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedDocument:
    """A document after a change of its tags. ``waiting``: some vectors have to be made anew.

    ``withheld``: what would have shown a claim to more readers than a source of somebody else has.
    """

    version_id: str
    tags: tuple[str, ...]
    withheld: tuple[str, ...]
    waiting: bool


class TagService:
    """Changes of tags by a document's owner, effective for the next query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        change: TagChange,
        access: Access | None,
    ) -> TaggedDocument:
        """Raises ``NotFoundError`` for what the caller can't see, ``ForbiddenError`` unless it is the owner."""
        changed = await run_again(
            lambda: self._change(tenant_id, principal_id, document_id, change=change, access=access)
        )
        if isinstance(changed, MemoryError):
            raise changed
        return changed

    async def _change(
        self,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        *,
        change: TagChange,
        access: Access | None,
    ) -> TaggedDocument | MemoryError:
        named = {"tenant": tenant_id, "document": document_id, "principal": principal_id}
        async with self._database.tenant(tenant_id) as conn:
            row = await _one(conn, "lock_own_document", named)
            # Asked once the lock is held: whoever had it may have added a version, or forgotten all.
            shown = None if row is None else await _one(conn, "shown_version", named)
            if row is None or shown is None:
                refusal = await self._refusal(conn, tenant_id, principal_id, document_id, access)
                if isinstance(refusal, ForbiddenError):
                    await self._tell(
                        conn, tenant_id, principal_id, document_id, change, AuditOutcome.FORBIDDEN
                    )
                return refusal
            withheld: tuple[str, ...] = ()
            if not change.narrows:
                foreign = await foreign_sources(conn, tenant_id, [document_id])
                readers = common_readers(foreign.get(document_id, ()), principal_id)
                change, withheld = change.within(readers, (*row["access_tags"], *row["system_tags"]))
            own, system = change.apply(row["access_tags"], row["system_tags"])
            too_many = None if change.narrows else tags_refusal((*own, *system))
            if too_many is not None:
                return too_many
            waiting, same = False, (own, system) == (row["access_tags"], row["system_tags"])
            if not same:
                changed = {"document_id": document_id, "access_tags": own, "system_tags": system}
                waiting = await retag(conn, tenant_id, [changed])
            outcome = AuditOutcome.UNCHANGED if same else AuditOutcome.DONE
            await self._tell(conn, tenant_id, principal_id, document_id, change, outcome)
        return TaggedDocument(
            version_id=shown["id"], tags=(*own, *system), withheld=withheld, waiting=waiting
        )

    async def _tell(
        self,
        conn: Connection,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        change: TagChange,
        outcome: AuditOutcome,
    ) -> None:
        await audit.record(
            conn,
            tenant_id,
            actor_id=principal_id,
            action=AuditAction.UNSHARE if change.narrows else AuditAction.SHARE,
            target_type=AuditTarget.DOCUMENT,
            target_id=document_id,
            outcome=outcome,
        )

    async def _refusal(
        self,
        conn: Connection,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        access: Access | None,
    ) -> MemoryError:
        """What somebody is told who may not change the document's tags."""
        row = await _one(conn, "whose_document", {"tenant": tenant_id, "document": document_id})
        if row is not None:
            visibility = await visibility_among(row["tags"], principal_id, access)
            if visibility.admits_version(
                active=row["active"],
                written=row["written"],
                owner=row["owner_principal_id"],
                tags=row["tags"],
                document_id=document_id,
            ):
                return ForbiddenError("only the document's creator may share it")
        return NotFoundError("document not found")


async def _one(conn: Connection, query: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(load_queries("access")[query], parameters)
    return await cursor.fetchone()


async def foreign_sources(
    conn: Connection, tenant_id: str, documents: Sequence[str]
) -> dict[str, list[frozenset[str]]]:
    """By document the tags of what it was made from and somebody else owns; most have none."""
    rows = await _rows(conn, "foreign_sources", {"tenant": tenant_id, "documents": list(documents)})
    found: dict[str, list[frozenset[str]]] = {}
    for document_id, _, tags in rows:
        found.setdefault(document_id, []).append(frozenset(tags))
    return found


async def retag(conn: Connection, tenant_id: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Give documents other tags, wherever these stand; ``rows`` of ``document_id, access_tags, system_tags``.

    Returns whether vectors were dropped and wait to be made anew.
    """
    documents = [row["document_id"] for row in rows]
    apart = await followers(conn, tenant_id, documents)
    locked = await lock_rows(conn, tenant_id, documents, apart)
    await conn.execute(
        load_queries("capture")["retag_documents"], {"tenant": tenant_id, "rows": Jsonb(list(rows))}
    )
    await retag_vectors(conn, tenant_id, documents)
    await note_tags(
        conn, tenant_id, {tag for row in rows for tag in (*row["access_tags"], *row["system_tags"])}
    )
    # Turns that were embedded together are apart now, and others come together.
    turns = [row for row in locked if row["turn"]]
    if turns:
        turns += await followers(conn, tenant_id, documents)
        await embed_anew(conn, tenant_id, list({row["chunk_id"]: row for row in turns}.values()))
    return bool(turns)


def tags_refusal(tags: Sequence[str]) -> MemoryError | None:
    """Why a document can't carry all these, if it can't: shares add up, and each query compares them."""
    if len(tags) <= TAGS_PER_DOCUMENT:
        return None
    return ConflictError(
        f"a document may carry at most {TAGS_PER_DOCUMENT} access tags; take some away first",
        details={"limit": TAGS_PER_DOCUMENT},
    )


async def note_tags(conn: Connection, tenant_id: str, tags: Collection[str]) -> None:
    """Have grants with a wildcard find these tags."""
    await conn.execute(load_queries("access")["note_tags"], {"tenant": tenant_id, "tags": sorted(tags)})


async def _rows(conn: Connection | Reading, query: str, parameters: dict[str, Any]) -> list[TupleRow]:
    text = load_queries("access")[query]
    if isinstance(conn, Reading):
        return await conn.fetch(text, parameters, tuple_row)
    return await (await conn.execute(text, parameters)).fetchall()


def _like(pattern: str) -> str:
    escaped = pattern.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return escaped.replace("*", "%")
