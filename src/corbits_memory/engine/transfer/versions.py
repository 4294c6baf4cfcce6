"""The versions of a batch: which of them are new here, what was erased, and the captures that they were made from."""

from collections.abc import Collection, Mapping

from corbits_memory.core.enums import VersionStatus
from corbits_memory.engine.transfer.batch import Group, Statements, Written, sliced
from corbits_memory.engine.transfer.format import Row
from corbits_memory.engine.transfer.pieces import Unit
from corbits_memory.errors import ConflictError

_IDENTITY = ("document_id", "version", "content_hash")
_PLACE = ("id", "document_id", "version", "status")


async def sort_out(db: Statements, groups: list[Group], done: Written) -> None:
    """Leave to each group the versions and edges that are new here and may be written."""
    units = [unit for group in groups for unit in group.units]
    known = {row["id"]: row for row in await db.fetch("known_versions", versions=[u.id for u in units])}
    captures = [unit.row["raw_capture_id"] for unit in units if unit.row["raw_capture_id"]]
    erased = {row["id"] for row in await db.fetch("erased_captures", captures=captures)}
    # In a document that was made just now, no place is taken.
    old = [unit for group in groups if not group.fresh for unit in group.units if unit.id not in known]
    taken: set[str] = set()
    if old:
        rows = await db.fetch("taken_places", rows=[{name: u.row[name] for name in _PLACE} for u in old])
        taken = {row["id"] for row in rows}
    for group in groups:
        group.units = [unit for unit in group.units if _is_new(unit, group, known, erased, taken, done)]
        group.edges = [edge for edge in group.edges if not group.is_erased(edge["created_at"])]


def _is_new(
    unit: Unit,
    group: Group,
    known: Mapping[str, Row],
    erased: Collection[str],
    taken: Collection[str],
    done: Written,
) -> bool:
    here = known.get(unit.id)
    tombstoned = here is not None and here["status"] == VersionStatus.TOMBSTONED
    if tombstoned or unit.row["raw_capture_id"] in erased or group.is_erased(unit.row["ingested_at"]):
        done.erased += 1
        return False
    if here is not None:
        _check_same(unit, here)
        return False
    if unit.id in taken:
        done.conflicts += 1
        return False
    return True


def _check_same(unit: Unit, here: Row) -> None:
    """A version that is here stays as it is, and must be what the file says."""
    for name in _IDENTITY:
        if here[name] != unit.row[name]:
            raise ConflictError(
                f"line {unit.line}: version.id is that of a version here whose {name} is another; nothing is added "
                "to it"
            )
    if here["chunks"] != [chunk["id"] for chunk in unit.chunks]:
        raise ConflictError(
            f"line {unit.line}: this version is here with other chunks ({len(here['chunks']):,}; the file has "
            f"{len(unit.chunks):,}); nothing is added to it"
        )


async def insert(db: Statements, groups: list[Group]) -> None:
    """Write them, each with the capture of its payload; what an older document shows follows its newest."""
    captures = await _keep_captures(db, groups)
    units = [unit for group in groups for unit in group.units]
    rows = [{**unit.row, "raw_capture_id": captures.get(unit.row["raw_capture_id"])} for unit in units]
    made = {row["id"] for row in await db.fetch("restore_versions", rows=rows)}
    for unit in units:
        if unit.id not in made:
            raise ConflictError(f"line {unit.line}: version.id is another version's here")
    older = [unit.id for group in groups if not group.fresh for unit in group.units]
    if older:
        await db.run("show_newest", versions=older)


async def _keep_captures(db: Statements, groups: list[Group]) -> dict[str, str]:
    """Of the raw captures that the versions name, their ids here: an identical one is kept once."""
    units = [(group, unit) for group in groups for unit in group.units if unit.row["raw_capture_id"]]
    if not units:
        return {}
    told = {unit.capture["id"]: unit.capture for _, unit in units if unit.capture is not None}
    for part in sliced(list(told.values()), "raw_text"):
        await db.run("restore_raw_captures", rows=part)
    rows = await db.fetch(
        "known_captures",
        captures=sorted({unit.row["raw_capture_id"] for _, unit in units}),
        hashes=[row["source_hash"] for row in told.values()],
    )
    by_id = {row["id"]: row for row in rows}
    by_hash = {row["source_hash"]: row for row in rows}
    names: dict[str, str] = {}
    for group, unit in units:
        capture_id = unit.row["raw_capture_id"]
        given = told.get(capture_id)
        here = by_id.get(capture_id) or (None if given is None else by_hash.get(given["source_hash"]))
        if here is None:
            raise ConflictError(
                f"line {unit.line}: version.raw_capture_id names a raw capture that is neither in the file nor here"
            )
        document = group.document.row
        same = all(here[name] == document[name] for name in ("adapter", "external_ref"))
        if not same or (given is not None and here["source_hash"] != given["source_hash"]):
            raise ConflictError(f"line {unit.line}: version.raw_capture_id names another raw capture here")
        names[capture_id] = here["id"]
    return names
