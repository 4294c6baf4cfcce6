"""What the versions and documents of a batch refer to and name."""

from corbits_memory.core.enums import EdgeEnd
from corbits_memory.engine.transfer.batch import Group, Statements
from corbits_memory.engine.transfer.format import Row
from corbits_memory.errors import ConflictError


async def insert(db: Statements, groups: list[Group]) -> None:
    edges = [edge for group in groups for unit in group.units for edge in unit.edges]
    edges += [edge for group in groups for edge in group.edges]
    if not edges:
        return
    names = await _name_entities(db, edges)
    rows = [
        {**edge, "to_ref": names.get(edge["to_ref"], edge["to_ref"])}
        if edge["to_type"] == EdgeEnd.ENTITY
        else edge
        for edge in edges
    ]
    await db.run("restore_edges", rows=rows)
    missing = await db.fetch("missing_edges", rows=rows)
    if missing:
        line = next(edge["line"] for edge in edges if edge["id"] == missing[0]["id"])
        raise ConflictError(f"line {line}: edge.id is another edge's here")


async def _name_entities(db: Statements, edges: list[Row]) -> dict[str, str]:
    """What entities of the export are called here."""
    entities = {edge["entity"]["id"]: edge["entity"] for edge in edges if edge["entity"] is not None}
    if not entities:
        return {}
    rows = list(entities.values())
    await db.run("restore_entities", rows=rows)
    names = {row["exported"]: row["id"] for row in await db.fetch("entity_ids", rows=rows)}
    for edge in edges:
        if edge["entity"] is not None and edge["to_ref"] not in names:
            raise ConflictError(f"line {edge['line']}: entity.id is another entity's here")
    return names
