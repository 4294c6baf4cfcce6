"""One transaction of ``add``: claim, compare, keep, supersede, insert, number."""

import asyncio
from collections.abc import Collection

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from corbits_memory.core import ids
from corbits_memory.core.enums import AddStatus, AuditOutcome, RetentionClass
from corbits_memory.core.erasure import erased_reference
from corbits_memory.engine import drafts
from corbits_memory.engine.access import (
    foreign_sources,
    note_tags,
    resolve_visibility,
    retag,
    tags_refusal,
    visibility_parameters,
)
from corbits_memory.engine.audience import (
    Source,
    fits,
    narrow_to_lineage,
    narrow_to_sources,
    reserved_tags,
    settle_tags,
    widens,
)
from corbits_memory.engine.drafts import Draft, Row, cut_anew
from corbits_memory.engine.generations import Generations
from corbits_memory.engine.graph import has_graph, insert_graph
from corbits_memory.engine.idempotency import OnceOnly
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.statements import Statements, dump_rows
from corbits_memory.engine.texts import enqueue_followers_of, insert_texts
from corbits_memory.errors import ExternalRefInUseError, ForbiddenError, InvalidInputError, MemoryError
from corbits_memory.ports import Access, AddResult, ShareReceipt


class CaptureWriter:
    """The statements of one transaction."""

    def __init__(
        self,
        conn: Connection,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        lease_seconds: float,
        noted_tags: Collection[tuple[str, str]],
        *,
        generations: Generations,
    ) -> None:
        self._conn = conn
        self._statements = Statements(conn, tenant_id, "capture", principal=principal_id)
        self._lease_seconds = lease_seconds
        self._tenant_id = tenant_id
        self._principal_id = principal_id
        self._access = access
        self._noted_tags = noted_tags
        self.new_tags: set[str] = set()
        self._generations = generations
        self._generation = ""
        self.cutting = generations.cutting
        """What texts of the live generation are cut by; known once they are written."""

    async def write(self, group: list[Draft], request: OnceOnly | None) -> dict[int, AddResult | MemoryError]:
        """The answers by position. ``request``: those that were given before are given again."""
        answers: dict[int, AddResult | MemoryError] = {}
        self._generation = await self._lock_tenant()
        if request is None:
            await self._write_new(group, answers)
            return answers
        # Before any document is locked: whoever waits for a key here holds up nobody who holds one.
        new = await request.take(self._conn, group, answers)
        if new:
            await self._write_new(new, answers, request)
        return answers

    async def _write_new(
        self, new: list[Draft], answers: dict[int, AddResult | MemoryError], request: OnceOnly | None = None
    ) -> None:
        await self._cut_as_live(new)
        group = await self._refuse_unknown_references(new, answers)
        claimed = await self._claim(group)
        owned = []
        for draft in group:
            row = claimed[draft.key]
            refusal = await self._refusal(draft, row)
            if refusal is not None:
                answers[draft.position] = refusal
                continue
            settle_tags(draft, row)
            owned.append((draft, row))
        await self._narrow_claims([(draft, row) for draft, row in owned if widens(draft, row)])
        await self._take_up([(draft, row) for draft, row in owned if "erased" in row])
        changed, retagged = await self._compare(owned, answers)
        for draft in changed:
            answers[draft.position] = AddResult(
                document_id=draft.document_id,
                version_id=draft.version_id,
                version=draft.version,
                status=AddStatus.CREATED if claimed[draft.key]["fresh"] else AddStatus.UPDATED,
                chunks=len(draft.chunks),
                share=_receipt(draft),
            )
        if request is not None:
            await request.keep(self._conn, new, answers)
        if retagged:
            await retag(self._conn, self._tenant_id, retagged)
        await self._retag_deprecated(changed, claimed)
        await self._audit(
            [(row["document_id"], AuditOutcome.DONE) for row in retagged]
            + [
                (claimed[draft.key]["id"], AuditOutcome.FORBIDDEN)
                for draft in group
                if isinstance(answers.get(draft.position), ForbiddenError)
            ]
        )
        if changed:
            # Last, since its last step holds up every writer of the tenant.
            await self._insert(changed, fresh=sum(claimed[d.key]["fresh"] for d in changed))

    async def _audit(self, acts: list[tuple[str, AuditOutcome]]) -> None:
        if acts:
            rows = [
                {"id": new_id(ids.AUDIT_EVENT), "document_id": document_id, "outcome": outcome}
                for document_id, outcome in acts
            ]
            await self._statements.run("audit", rows=rows)

    async def _lock_tenant(self) -> str:
        rows = await self._statements.fetch("lock_tenant")
        if not rows:
            await self._statements.run("create_tenant")
            rows = await self._statements.fetch("lock_tenant")
        return str(rows[0]["live_generation"])

    async def _cut_as_live(self, group: list[Draft]) -> None:
        """Another generation may have been promoted since the drafts were planned."""
        live = await self._generations.get(self._tenant_id, self._generation, self._conn)
        self.cutting = live.cutting
        otherwise = [draft for draft in group if draft.cutting != self.cutting]
        if otherwise:
            await asyncio.to_thread(cut_anew, otherwise, self.cutting)

    async def _refuse_unknown_references(
        self, group: list[Draft], answers: dict[int, AddResult | MemoryError]
    ) -> list[Draft]:
        wanted = sorted({reference for draft in group for reference in draft.references})
        if not wanted and not any(reserved_tags(draft, self._principal_id) for draft in group):
            return group
        visibility = await resolve_visibility(self._conn, self._tenant_id, self._principal_id, self._access)
        rows = await self._statements.fetch(
            "citable_versions", ids=wanted, **visibility_parameters(visibility)
        )
        sources = {row["id"]: Source(row["owner_principal_id"], frozenset(row["tags"])) for row in rows}
        kept = []
        for draft in group:
            unknown = sum(reference not in sources for reference in draft.references)
            if unknown:
                answers[draft.position] = InvalidInputError(
                    "derived_from, supports and contradicts must name versions that exist and that you may see.",
                    details={"unknown": unknown},
                )
            elif not narrow_to_sources(draft, sources, self._principal_id):
                answers[draft.position] = InvalidInputError(
                    "access_tags may hold reserved tags only as copies of what a derived_from version carries.",
                    details={"field": "access_tags"},
                )
            else:
                kept.append(draft)
        return kept

    async def _refusal(self, draft: Draft, row: Row) -> MemoryError | None:
        """Why this caller may not write to the document that the reference names."""
        if row["owner_principal_id"] == self._principal_id:
            return None
        if "erased" in row:
            # Taking up what was forgotten is its owner's decision.
            return ExternalRefInUseError()
        tags = (*row["access_tags"], *row["system_tags"])
        if self._access is None or not await self._access.reaches("add", tags):
            return ExternalRefInUseError()
        if draft.access_tags is not None or draft.system_tags is not None:
            return ForbiddenError(
                "only the document's creator may change its tags or share it; leave out access_tags and share"
            )
        if draft.document.thread != row["thread"]:
            return ForbiddenError(
                "only the document's creator may move it to another thread; add it with the thread that it has"
            )
        if not fits(draft, row):
            return ForbiddenError(
                "derived_from names a version that has fewer readers than this document; only the document's "
                "creator may narrow it"
            )
        return None

    async def _claim(self, group: list[Draft]) -> dict[tuple[str, str], Row]:
        if not group:
            return {}
        rows = [drafts.document_row(draft, self._principal_id, self._tenant_id) for draft in group]
        adapters = sorted({draft.document.adapter for draft in group})
        async with self._conn.pipeline():
            claims = await self._statements.send("claim_documents", rows=rows)
            # Asked after the claim, with a snapshot of its own: whoever forgets one meanwhile holds the claim up.
            forgotten = await self._statements.send("has_forgotten", adapters=adapters)
            claimed = await claims.fetchall()
            asked = await forgotten.fetchall()
        found = {(row["adapter"], row["external_ref"]): row for row in claimed}
        if asked[0]["found"]:
            named = [
                draft.key for draft in group if draft.document.external_ref and found[draft.key]["fresh"]
            ]
            found.update(await self._forgotten(named, found))
        return found

    async def _forgotten(
        self, keys: list[tuple[str, str]], claimed: dict[tuple[str, str], Row]
    ) -> dict[tuple[str, str], Row]:
        """Forgotten documents of these names, in the place of the rows that were made for them just now."""
        erased = {erased_reference(self._tenant_id, *key): key for key in keys}
        rows = await self._statements.fetch(
            "forgotten_documents", adapters=[key[0] for key in erased.values()], refs=list(erased)
        )
        if not rows:
            return {}
        found = {}
        for row in rows:
            key = erased[row["external_ref"]]
            found[key] = {**row, "fresh": False, "erased": True, "thread_seq": claimed[key]["thread_seq"]}
        await self._statements.run("drop_claims", documents=[claimed[key]["id"] for key in found])
        return found

    async def _take_up(self, forgotten: list[tuple[Draft, Row]]) -> None:
        """Give forgotten documents their names back: they are added to anew."""
        if forgotten:
            rows = [
                {"id": row["id"], "external_ref": draft.external_ref, "thread_seq": row["thread_seq"]}
                for draft, row in forgotten
            ]
            await self._statements.run("rename_documents", rows=rows)

    async def _narrow_claims(self, widened: list[tuple[Draft, Row]]) -> None:
        if not widened:
            return
        known = [draft.document_id for draft, _ in widened]
        foreign = await foreign_sources(self._conn, self._tenant_id, known)
        for draft, row in widened:
            narrow_to_lineage(draft, row, foreign.get(draft.document_id, ()))

    async def _compare(
        self, owned: list[tuple[Draft, Row]], answers: dict[int, AddResult | MemoryError]
    ) -> tuple[list[Draft], list[Row]]:
        """The drafts that need a version, and the rows whose tags alone changed."""
        known = [draft.document_id for draft, row in owned if not row["fresh"]]
        current: dict[str, Row] = {}
        if known:
            rows = await self._statements.fetch(
                "current_versions", documents=known, generation=self._generation
            )
            current = {row["document_id"]: row for row in rows}
        changed: list[Draft] = []
        retagged: list[Row] = []
        for draft, row in owned:
            version = current.get(draft.document_id, {})
            refusal = tags_refusal(draft.tags) or _settle_retention(draft, version, self._principal_id)
            if refusal is not None:
                answers[draft.position] = refusal
                continue
            if version.get("content_hash") != draft.content_hash:
                draft.version = (version.get("last_version") or 0) + 1
                draft.supersedes = version.get("active_id")
                draft.version_id = new_id(ids.VERSION)
                draft.chunk_ids = [new_id(ids.CHUNK) for _ in draft.chunks]
                changed.append(draft)
                continue
            same = draft.own_tags == row["access_tags"] and draft.shared_tags == row["system_tags"]
            if not same:
                draft.retagged = True
                retagged.append(_tags_row(draft))
            answers[draft.position] = AddResult(
                document_id=draft.document_id,
                version_id=version["active_id"],
                version=version["active_version"],
                status=AddStatus.UNCHANGED if same else AddStatus.UPDATED,
                chunks=0,
                share=_receipt(draft),
            )
        return changed, retagged

    async def _retag_deprecated(self, changed: list[Draft], claimed: dict[tuple[str, str], Row]) -> None:
        """Versions out of use are still searched: other tags of a new version narrow or widen them, too."""
        moved = {
            draft.document_id: draft
            for draft in changed
            if not claimed[draft.key]["fresh"]
            and (draft.own_tags, draft.shared_tags)
            != (claimed[draft.key]["access_tags"], claimed[draft.key]["system_tags"])
        }
        if not moved:
            return
        rows = await self._statements.fetch("deprecated_documents", documents=sorted(moved))
        found = [moved[row["document_id"]] for row in rows]
        if found:
            await retag(self._conn, self._tenant_id, [_tags_row(draft) for draft in found])
            for draft in found:
                draft.retagged = True

    async def _insert(self, changed: list[Draft], *, fresh: int) -> None:
        """All statements in one go: while the database works on one, the rows of the next are made."""
        superseding = [draft for draft in changed if draft.supersedes]
        dropped: AsyncCursor[TupleRow] | None = None
        async with self._conn.pipeline():
            if superseding:
                documents = [draft.document_id for draft in superseding]
                await self._statements.run(
                    "supersede_versions", versions=[draft.supersedes for draft in superseding]
                )
                dropped = await self._statements.run(
                    "drop_search_rows", documents=documents, generation=self._generation
                )
            rows = [drafts.version_row(draft) for draft in changed]
            again = [row for row, draft in zip(rows, changed, strict=True) if draft.version > 1]
            if again:
                await self._statements.run("update_documents", rows=again)
            # The longest statement goes first: while it runs, the payloads are written out.
            await insert_texts(
                self._statements,
                changed,
                dump_rows(rows),
                generation=self._generation,
                lease_seconds=self._lease_seconds,
            )
            # A statement of its own: a payload that raced is seen only by a later one's snapshot.
            captures = [{"id": new_id(ids.RAW_CAPTURE), **drafts.raw_capture(draft)} for draft in changed]
            await self._statements.run("keep_raw_captures", rows=captures)
            await self._audit([(draft.document_id, AuditOutcome.DONE) for draft in changed])
            for row, draft in zip(rows, changed, strict=True):
                row["source_hash"] = draft.source_hash
            versions = dump_rows(rows)
            await enqueue_followers_of(self._statements, changed, generation=self._generation)
            if dropped is None and not any(map(has_graph, changed)):
                await self._finish(changed, versions, dropped=0, fresh=fresh)
                return
        await insert_graph(self._statements, changed)
        await self._finish(changed, versions, dropped=dropped.rowcount if dropped else 0, fresh=fresh)

    async def _note_tags(self, changed: list[Draft]) -> None:
        tags = {tag for draft in changed for tag in draft.tags}
        self.new_tags = {tag for tag in tags if (self._tenant_id, tag) not in self._noted_tags}
        if self.new_tags:
            await note_tags(self._conn, self._tenant_id, self.new_tags)

    async def _finish(self, changed: list[Draft], versions: str, *, dropped: int, fresh: int) -> None:
        """What every add ends with; ``dropped``: rows of superseded text."""
        await self._note_tags(changed)
        await self._statements.run(
            "insert_versions",
            versions=versions,
            count=len(changed),
            documents=fresh,
            chunks=sum(len(draft.chunk_ids) for draft in changed) - dropped,
            languages=sorted({draft.language for draft in changed}),
            generation=self._generation,
        )


def _settle_retention(draft: Draft, version: Row, principal_id: str) -> MemoryError | None:
    """Whoever may add to another's document keeps its class: a hold, or an end, is its creator's to set."""
    if draft.owner == principal_id:
        return None
    kept = RetentionClass(version.get("retention_class") or draft.retention_class)
    if draft.retention_class not in (RetentionClass.STANDARD, kept):
        return ForbiddenError("only the document's creator may change its retention class")
    draft.retention_class = kept
    return None


def _tags_row(draft: Draft) -> Row:
    """The row of ``retag_documents``."""
    return {
        "document_id": draft.document_id,
        "access_tags": draft.own_tags,
        "system_tags": draft.shared_tags,
    }


def _receipt(draft: Draft) -> ShareReceipt | None:
    """What became of the share on this side; grants are the plane's to write."""
    if draft.document.share is None and not draft.withheld:
        return None
    return ShareReceipt(tags=tuple(draft.tags), principals=tuple(draft.peers), withheld=tuple(draft.withheld))
