"""What documents say of entities and of each other, as rows: entities by kind and identifier, edges each once."""

from collections.abc import Iterator

from corbits_memory.core import ids
from corbits_memory.core.enums import EdgeEnd, EdgeRel, HintEnd
from corbits_memory.engine.drafts import Draft, Row
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.statements import Statements


def has_graph(draft: Draft) -> bool:
    document = draft.document
    return bool(document.entity_hints or document.edges or draft.references)


async def insert_graph(statements: Statements, drafts: list[Draft]) -> None:
    """Entities and edges of drafts whose documents and versions are settled."""
    entities = await _upsert_entities(statements, drafts)
    edges = [edge for draft in drafts for edge in _edges(draft, entities)]
    if edges:
        await statements.run("insert_edges", rows=edges)


async def _upsert_entities(statements: Statements, drafts: list[Draft]) -> dict[tuple[str, str], str]:
    wanted: dict[tuple[str, str], str | None] = {}
    for draft in drafts:
        for hint in draft.document.entity_hints:
            wanted[hint.kind, hint.identifier] = hint.label or wanted.get((hint.kind, hint.identifier))
        for edge in draft.document.edges:
            if edge.type is HintEnd.NATIVE:
                wanted.setdefault(("principal", edge.ref), None)
    if not wanted:
        return {}
    rows = [
        {"id": new_id(ids.ENTITY), "kind": kind, "identifier": identifier, "label": label}
        for (kind, identifier), label in wanted.items()
    ]
    found = await statements.fetch("upsert_entities", rows=rows)
    return {(row["kind"], row["identifier"]): row["id"] for row in found}


def _edges(draft: Draft, entities: dict[tuple[str, str], str]) -> Iterator[Row]:
    document = draft.document
    for hint in document.entity_hints:
        yield _edge(
            EdgeRel.MENTIONS,
            EdgeEnd.DOCUMENT,
            draft.document_id,
            EdgeEnd.ENTITY,
            entities[hint.kind, hint.identifier],
        )
    for edge in document.edges:
        if edge.type is HintEnd.NATIVE:
            yield _edge(
                edge.rel, EdgeEnd.DOCUMENT, draft.document_id, EdgeEnd.ENTITY, entities["principal", edge.ref]
            )
        else:
            yield _edge(edge.rel, EdgeEnd.DOCUMENT, draft.document_id, EdgeEnd(edge.type), edge.ref)
    claims = {
        EdgeRel.DERIVED_FROM: document.derived_from,
        EdgeRel.SUPPORTS: document.supports,
        EdgeRel.CONTRADICTS: document.contradicts,
    }
    for rel, references in claims.items():
        for reference in references:
            yield _edge(rel, EdgeEnd.VERSION, draft.version_id, EdgeEnd.VERSION, reference)


def _edge(rel: EdgeRel, from_type: EdgeEnd, from_ref: str, to_type: EdgeEnd, to_ref: str) -> Row:
    return {
        "id": new_id(ids.EDGE),
        "rel": rel,
        "from_type": from_type,
        "from_ref": from_ref,
        "to_type": to_type,
        "to_ref": to_ref,
    }
