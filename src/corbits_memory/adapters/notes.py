"""A document as one note in a vendor's store, and back: readable text, and metadata that says which one it is."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from corbits_memory.access.tags import resolve_access_tags
from corbits_memory.core.enums import CreatedByKind, Provenance
from corbits_memory.core.instants import iso_instant
from corbits_memory.core.limits import TITLE_CHARS
from corbits_memory.core.snippets import snippet
from corbits_memory.core.text import words
from corbits_memory.ports import Attribution, Citation, NewDocument, OpenTarget, SearchItem

UNKNOWN_SCORE = 0.5
TITLE_FROM_TEXT = 80
_HEADING = re.compile(r"# ([^\n]*)\n?")
_TRAILER = re.compile(r"\n*---\ndocumentId: [^\n]*(?:\n(?:externalRef|accessTags): [^\n]*)*\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is sent: ``content`` for the vendor's models, ``metadata`` (flat text) for us."""

    document_id: str
    content: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is found, in no vendor's terms."""

    id: str | None
    text: str
    score: object
    metadata: Mapping[str, Any]
    updated_at: object = None


def rows_of(answer: Any, *, listed_as: Sequence[str]) -> list[Mapping[str, Any]] | None:
    """The objects of an answer that is a list, or has one under a name; None when it is neither."""
    found = answer
    if isinstance(answer, Mapping):
        found = next((answer[name] for name in listed_as if answer.get(name) is not None), [])
    if found is None:
        return []
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else None


def row_of(found: Mapping[str, Any], *, texts: Sequence[str], score: str, updated: str) -> Row:
    """A row of an answer, by the names that its vendor uses; ``texts`` in the order of preference."""
    text = next((found[name] for name in texts if found.get(name)), "")
    row_id, metadata = found.get("id"), found.get("metadata")
    return Row(
        id=row_id if isinstance(row_id, str) and row_id.strip() else None,
        text=text if isinstance(text, str) else "",
        score=found.get(score),
        metadata=metadata if isinstance(metadata, Mapping) else {},
        updated_at=found.get(updated),
    )


def written(document: NewDocument, *, tenant_id: str, principal_id: str) -> Note:
    """A note with an id of its own: vendors keep no versions, so each add is a new document."""
    document_id = str(uuid4())
    external_ref = document.external_ref or document_id
    tags = ",".join(resolve_access_tags(principal_id, tenant_id, document.access_tags, document.share))
    heading = " ".join(document.title.split())
    trailer = f"documentId: {document_id}\nexternalRef: {' '.join(external_ref.split())}\naccessTags: {tags}"
    given = {
        "kind": document.kind if document.kind != "note" else None,
        "author": document.author,
        "thread": document.thread,
        "generatorAgentId": document.generator_agent_id,
        "provenance": document.provenance,
        "occurredAt": document.occurred_at and iso_instant(document.occurred_at),
        "validFrom": document.valid_from and iso_instant(document.valid_from),
        "validUntil": document.valid_until and iso_instant(document.valid_until),
    }
    metadata = {
        "documentId": document_id,
        "title": document.title,
        "accessTags": tags,
        "externalRef": external_ref,
        **{name: str(value) for name, value in given.items() if value is not None},
    }
    content = f"# {heading}\n\n{document.text}\n\n---\n{trailer}"
    return Note(document_id=document_id, content=content, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row read back. ``None`` where the note doesn't say."""

    document_id: str
    external_ref: str
    title: str
    body: str
    score: float
    kind: str
    author: str | None
    thread: str | None
    generator_agent_id: str | None
    provenance: str | None
    occurred_at: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    updated_at: datetime | None

    def item(self, query: str, *, adapter: str, owner: str) -> SearchItem:
        """The hit; it opens at ``<adapter>://<id>``."""
        target = OpenTarget(type="memory", id=self.document_id, url=f"{adapter}://{self.document_id}")
        return SearchItem(
            document_id=self.document_id,
            chunk_id=None,
            title=self.title,
            snippet=snippet(self.body, words(query)),
            text=self.body,
            score=self.score,
            kind=self.kind,
            adapter=adapter,
            external_ref=self.external_ref,
            citation=Citation(adapter=adapter, external_ref=self.external_ref, open=target),
            updated_at=self.updated_at,
            attribution=Attribution(
                version_id=self.document_id,
                version=1,
                status="active",
                created_by_kind=CreatedByKind.AGENT if self.generator_agent_id else CreatedByKind.HUMAN,
                owner=owner,
                author=self.author,
                thread=self.thread,
                generator_agent_id=self.generator_agent_id,
                provenance=self.provenance,
                occurred_at=self.occurred_at,
                valid_until=self.valid_until,
            ),
        )


def read(row: Row) -> Found:
    """Whatever a row lacks, or has in another shape, is made up as far as it can be."""
    named = {name: value for name, value in row.metadata.items() if isinstance(value, str) and value.strip()}
    document_id = named.get("documentId") or row.id or str(uuid4())
    heading, body = _parts(row.text)
    title = named.get("title") or heading or body[:TITLE_FROM_TEXT].strip() or "untitled"
    provenance = named.get("provenance")
    return Found(
        document_id=document_id,
        external_ref=named.get("externalRef") or document_id,
        title=title[:TITLE_CHARS],
        body=body,
        score=_score(row.score),
        kind=named.get("kind") or "note",
        author=named.get("author"),
        thread=named.get("thread"),
        generator_agent_id=named.get("generatorAgentId"),
        provenance=provenance if provenance in {str(known) for known in Provenance} else None,
        occurred_at=instant(named.get("occurredAt")),
        valid_from=instant(named.get("validFrom")),
        valid_until=instant(named.get("validUntil")),
        updated_at=instant(row.updated_at),
    )


def instant(value: object) -> datetime | None:
    """An aware datetime; UTC where no zone is given, None for anything that is no time."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _parts(text: str) -> tuple[str, str]:
    """(heading, text without it and without what we wrote below)."""
    body = _TRAILER.sub("", text)
    heading = _HEADING.match(body)
    if heading is None:
        return "", body.strip()
    return heading[1].strip(), body[heading.end() :].strip()


def _score(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return UNKNOWN_SCORE
    return float(value)
