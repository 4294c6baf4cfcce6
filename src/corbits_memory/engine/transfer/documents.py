"""The documents of a batch: which of them may be written to, and what of their tags is to stay."""

from collections.abc import Sequence

from corbits_memory.core.erasure import ERASED, erased_reference
from corbits_memory.engine.access import note_tags, retag
from corbits_memory.engine.transfer.batch import Group, Statements, Withheld, Written
from corbits_memory.engine.transfer.format import Row
from corbits_memory.engine.transfer.lines import Document
from corbits_memory.errors import ConflictError

_IDENTITY = ("owner_principal_id", "adapter", "external_ref")
_TAGS = ("access_tags", "system_tags")


async def claim(db: Statements, groups: list[Group], done: Written) -> list[Group]:
    """The groups that may be written to, their documents made or locked."""
    ids = [group.document.id for group in groups]
    made = await db.fetch("restore_documents", rows=[group.document.row for group in groups])
    fresh = {row["id"] for row in made}
    # Statements of their own: what was committed while the documents were waited for is seen from here on.
    here = {row["id"]: row for row in await db.fetch("lock_documents", documents=ids)}
    erasures = {row["document_id"]: row for row in await db.fetch("erasures", documents=ids)}
    named_alike = await _forgotten_alike(
        db, [group.document for group in groups if group.document.id in fresh]
    )
    kept = []
    for group in groups:
        document, erasure = group.document, erasures.get(group.document.id)
        row = here.get(document.id)
        purged = erasure is not None and erasure["purged"]
        if purged or (row is not None and _is_forgotten(db.tenant_id, row, document)):
            done.erased += len(group.units)
        elif row is None or document.id in named_alike:
            done.skipped.append(document.id)
        else:
            _check_identity(row, document)
            group.fresh = document.id in fresh
            group.forgotten_at = None if erasure is None else erasure["forgotten_at"]
            kept.append(group)
    await _drop(db, fresh.difference(group.document.id for group in kept))
    return kept


async def drop_empty(db: Statements, groups: list[Group]) -> list[Group]:
    """Without documents of which nothing is to be written and nothing was here."""
    empty = {group.document.id for group in groups if group.fresh and not group.units}
    await _drop(db, empty)
    return [group for group in groups if group.document.id not in empty]


async def admit(db: Statements, groups: list[Group], done: Written) -> None:
    """Note the tags that come into use, and which of them still need a source that carries them."""
    fresh = [group.document for group in groups if group.fresh]
    tags = {tag for group in groups for unit in group.units for tag in unit.row["access_tags"]}
    for document in fresh:
        tags.update(*(document.row[name] for name in _TAGS))
    if tags:
        await note_tags(db.conn, db.tenant_id, tags)
    asked = [Withheld(document.id, document.foreign) for document in fresh if document.foreign]
    done.unsettled = await _uncarried(db, asked)


async def settle(db: Statements, waiting: Sequence[Withheld]) -> int:
    ids = [claim.document_id for claim in waiting]
    rows = {row["id"]: row for row in await db.fetch("lock_documents", documents=ids)}
    changed = [
        {
            "document_id": claim.document_id,
            **{
                name: [tag for tag in rows[claim.document_id][name] if tag not in claim.tags]
                for name in _TAGS
            },
        }
        for claim in await _uncarried(db, waiting)
        if claim.document_id in rows
    ]
    if changed:
        await retag(db.conn, db.tenant_id, changed)
    return len(changed)


async def _uncarried(db: Statements, asked: Sequence[Withheld]) -> list[Withheld]:
    if not asked:
        return []
    rows = await db.fetch("carried_tags", documents=[claim.document_id for claim in asked])
    carried = {row["id"]: row["tags"] for row in rows}
    left = [Withheld(c.document_id, c.tags.difference(carried.get(c.document_id, ()))) for c in asked]
    return [claim for claim in left if claim.tags]


async def _drop(db: Statements, documents: set[str]) -> None:
    if documents:
        await db.capture.run("drop_claims", documents=sorted(documents))


async def _forgotten_alike(db: Statements, made: Sequence[Document]) -> set[str]:
    """Documents that were made just now and whose reference is that of another one, which was forgotten here."""
    if not made:
        return set()
    names = {
        erased_reference(db.tenant_id, document.row["adapter"], document.row["external_ref"]): document
        for document in made
    }
    rows = await db.capture.fetch(
        "forgotten_documents",
        adapters=[document.row["adapter"] for document in names.values()],
        refs=list(names),
    )
    return {names[row["external_ref"]].id for row in rows}


def _is_forgotten(tenant_id: str, here: Row, document: Document) -> bool:
    """Whether it is what is left of this document: the rest of its identity, and its reference as a hash."""
    if not here["external_ref"].startswith(ERASED):
        return False
    row = document.row
    return (here["owner_principal_id"], here["adapter"], here["external_ref"]) == (
        row["owner_principal_id"],
        row["adapter"],
        erased_reference(tenant_id, row["adapter"], row["external_ref"]),
    )


def _check_identity(here: Row, document: Document) -> None:
    for name in _IDENTITY:
        if here[name] != document.row[name]:
            raise ConflictError(
                f"line {document.line}: document.id is that of a document here whose {name} is another; an export "
                "is read back only into the documents that it is of"
            )
