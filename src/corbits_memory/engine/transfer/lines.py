"""What each kind of line may hold: the fields that are read back, in the limits of ``add``.

A check returns the row with these fields alone; what else a line says is left out.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import (
    CreatedByKind,
    DeprecatedReason,
    EdgeEnd,
    EdgeRel,
    LineageClass,
    Provenance,
    RetentionClass,
    TemporalClass,
    VersionStatus,
)
from corbits_memory.core.erasure import ERASED
from corbits_memory.core.hashing import sha256_hex
from corbits_memory.engine.transfer.fields import Fields, integer
from corbits_memory.engine.transfer.format import FORMAT, FORMAT_VERSION, Row
from corbits_memory.engine.transfer.tags import check_tags
from corbits_memory.errors import InvalidInputError
from corbits_memory.validation import Problems
from corbits_memory.validation.documents import TOO_LONG_REFERENCE

HALF_MAX = 65_504.0
"""The largest number that a vector's element may be."""
WITHHELD = "withheld:"
"""Begins a content hash that an export didn't tell: it is equal to no other."""
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line: whose export this is, and which model its vectors are of."""

    tenant: str
    model_key: str | None = None
    dims: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What of the place that it is read back into decides what a line may hold."""

    tenant_id: str
    languages: frozenset[str]
    header: Header


def check_header(line: Mapping[str, Any]) -> Header:
    """Raises ``InvalidInputError`` unless this is the first line of an export that this release reads."""
    if FORMAT not in line:
        raise InvalidInputError(f"this is no export: its first line has no {FORMAT}")
    version = line[FORMAT]
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidInputError(f"this is no export: {FORMAT} in its first line must be a number")
    if version != FORMAT_VERSION:
        raise InvalidInputError(
            f"this export has the format version {version}, and this release reads {FORMAT_VERSION}: "
            + ("upgrade to import it" if version > FORMAT_VERSION else "export it anew with this release")
        )
    problems = Problems()
    tenant = problems.required_identifier("tenant", line.get("tenant"))
    problems.instant("exported_at", line.get("exported_at"))
    model = line.get("model")
    if model is None:
        problems.raise_if_any()
        return Header(tenant=tenant)
    if not isinstance(model, Mapping):
        problems.add("model", "must be an object")
        model = {}
    key = problems.required_identifier("model.model_key", model.get("model_key"))
    dims = integer(problems, "model.dims", model.get("dims"), low=1, high=limits.EMBED_DIMS_MAX)
    problems.raise_if_any()
    return Header(tenant=tenant, model_key=key, dims=dims)


@dataclass(slots=True)
class Document:
    """A document of the file. ``foreign``: its reserved tags that only a source of it could have given."""

    row: Row
    foreign: frozenset[str]
    line: int
    last_version: int = 0
    active: bool = False
    claim: bool = False
    """Whether something of it was seen to be made from another version."""

    @property
    def id(self) -> str:
        return str(self.row["id"])


def check_document(given: object, here: Here, *, line: int) -> Document:
    fields = Fields("document", given)
    row: Row = {
        "id": fields.name("id"),
        "kind": fields.name("kind", most=limits.KIND_CHARS),
        "title": fields.text("title", most=limits.TITLE_CHARS),
        "adapter": fields.name("adapter"),
        "external_ref": fields.name("external_ref", most=limits.EXTERNAL_REF_CHARS),
        "owner_principal_id": fields.name("owner_principal_id"),
        "attributes": fields.scalars("attributes"),
        "thread": fields.optional_name("thread"),
        "thread_seq": fields.integer("thread_seq", high=limits.SAFE_INTEGER),
        "author": fields.optional_name("author", most=limits.AUTHOR_CHARS),
        "created_at": fields.instant("created_at"),
        "last_seen_at": fields.instant("last_seen_at"),
    }
    if row["external_ref"].startswith(ERASED):
        fields.add(
            "external_ref", f"must not begin with {ERASED} (what is left of a forgotten document's own)"
        )
    names = (here.tenant_id, row["adapter"], row["external_ref"])
    if sum(len(name.encode()) for name in names) > limits.REFERENCE_BYTES:
        fields.add("external_ref", TOO_LONG_REFERENCE)
    row["access_tags"], foreign = _tags_of(fields, "access_tags", row, here)
    row["system_tags"], more = _tags_of(fields, "system_tags", row, here)
    if len(row["access_tags"]) + len(row["system_tags"]) > limits.TAGS_PER_DOCUMENT:
        fields.add(
            "system_tags", f"and access_tags must have at most {limits.TAGS_PER_DOCUMENT:,} entries together"
        )
    fields.done()
    return Document(row=row, foreign=foreign | more, line=line)


def check_raw_capture(given: object, document: Row) -> Row:
    fields = Fields("raw_capture", given)
    fields.same("adapter", document["adapter"], "the document's")
    fields.same("external_ref", document["external_ref"], "the document's")
    row: Row = {
        "id": fields.name("id"),
        "adapter": document["adapter"],
        "external_ref": document["external_ref"],
        "fetched_at": fields.instant("fetched_at"),
        "content_type": fields.name("content_type"),
        "raw_text": fields.text("raw_text", most=limits.LINE_BYTES),
        "metadata": fields.scalars("metadata"),
        "source_hash": fields.name("source_hash"),
    }
    if not fields.problems and row["source_hash"] != sha256_hex(row["raw_text"]):
        fields.add("source_hash", "must be the SHA-256 of raw_text")
    fields.done()
    return row


def check_version(given: object, document: Row, here: Here) -> tuple[Row, frozenset[str]]:
    """The version, and those of its reserved tags that only a source of it could have given."""
    fields = Fields("version", given)
    fields.same("document_id", document["id"], "the document's that stands before it")
    fields.same("owner_principal_id", document["owner_principal_id"], "the document's")
    row: Row = {
        "id": fields.name("id"),
        "document_id": document["id"],
        "version": fields.integer("version", low=1),
        "supersedes_version_id": fields.optional_name("supersedes_version_id"),
        "status": fields.choice("status", VersionStatus),
        "content_hash": fields.name("content_hash"),
        "title": fields.text("title", most=limits.TITLE_CHARS),
        "kind": fields.name("kind", most=limits.KIND_CHARS),
        "attributes": fields.scalars("attributes"),
        "thread": fields.optional_name("thread"),
        "author": fields.optional_name("author", most=limits.AUTHOR_CHARS),
        "language": fields.name("language"),
        "occurred_at": fields.instant("occurred_at"),
        "ingested_at": fields.instant("ingested_at"),
        "superseded_at": fields.optional_instant("superseded_at"),
        "deprecated_at": fields.optional_instant("deprecated_at"),
        "deprecated_reason": fields.optional_choice("deprecated_reason", DeprecatedReason),
        "owner_principal_id": document["owner_principal_id"],
        "created_by_principal_id": fields.optional_name("created_by_principal_id"),
        "created_by_kind": fields.choice("created_by_kind", CreatedByKind),
        "generator_agent_id": fields.optional_name("generator_agent_id"),
        "authority": fields.share_of_one("authority"),
        "actor_count": fields.integer("actor_count"),
        "has_social_signal": fields.flag("has_social_signal"),
        "source_class": fields.choice("source_class", LineageClass),
        "raw_capture_id": fields.optional_name("raw_capture_id"),
        "provenance": fields.choice("provenance", Provenance),
        "temporal_class": fields.choice("temporal_class", TemporalClass),
        "valid_from": fields.optional_instant("valid_from"),
        "valid_until": fields.optional_instant("valid_until"),
        "retention_class": fields.choice("retention_class", RetentionClass),
        "chunks": fields.integer("chunks", high=limits.CHUNKS_PER_VERSION),
    }
    if row["status"] == VersionStatus.TOMBSTONED:
        fields.add("status", "must not be tombstoned: what is forgotten has no export")
    if not _is_content_hash(row["content_hash"], row["id"]):
        fields.add("content_hash", "must be a SHA-256 in hex")
    if row["language"] not in here.languages:
        fields.add("language", "is no text search configuration of this database, like english or simple")
    row["access_tags"], foreign = _tags_of(fields, "access_tags", document, here)
    fields.done()
    return row, foreign


def check_chunk(given: object, version: Row, *, ordinal: int) -> Row:
    """The next chunk of a version; ``ordinal`` is the place that it has to have."""
    fields = Fields("chunk", given)
    fields.same("version_id", version["id"], "the version's that stands before it")
    fields.same("document_id", version["document_id"], "the version's")
    if ordinal >= version["chunks"]:
        fields.add("ordinal", f"is one too many: the version has {version['chunks']:,} chunks")
    row: Row = {
        "id": fields.name("id"),
        "version_id": version["id"],
        "document_id": version["document_id"],
        "ordinal": fields.integer("ordinal"),
        "text": fields.text("text", most=limits.CHUNK_CHARS, may_be_blank=True),
        "role": fields.optional_text("role", most=limits.ID_CHARS, may_be_blank=True),
        "token_count": fields.integer("token_count", high=limits.CHUNK_CHARS),
        "created_at": fields.instant("created_at"),
    }
    if not fields.problems and row["ordinal"] != ordinal:
        fields.add("ordinal", f"must be {ordinal:,}: the chunks of a version stand in order, each once")
    fields.done()
    return row


def check_vector(given: object, previous: object, dims: int) -> tuple[str, str | None]:
    """A chunk's vector as text, and the turn that it was embedded with."""
    problems = Problems()
    before = problems.identifier("previous", previous)
    if not isinstance(given, str) or not _is_vector(given, dims):
        problems.add("vector", f"must be text that holds a list of {dims:,} numbers")
    problems.raise_if_any()
    return str(given), before


def check_edge(given: object, entity: object, *, from_type: EdgeEnd, from_ref: str) -> Row:
    """An edge from the document or version that stands before it; ``entity`` is kept under that name."""
    fields = Fields("edge", given)
    fields.same("from_ref", from_ref, f"the {from_type}'s that stands before it")
    row: Row = {
        "id": fields.name("id"),
        "rel": fields.choice("rel", EdgeRel),
        "from_type": from_type,
        "from_ref": from_ref,
        "to_type": fields.choice("to_type", EdgeEnd),
        "to_ref": fields.name("to_ref", most=limits.EXTERNAL_REF_CHARS),
        "created_at": fields.instant("created_at"),
    }
    fields.done()
    row["entity"] = None if entity is None else _check_entity(entity, row)
    return row


def _check_entity(given: object, edge: Row) -> Row:
    fields = Fields("entity", given)
    if edge["to_type"] != EdgeEnd.ENTITY:
        fields.add("id", "stands beside an edge that names no entity")
    fields.same("id", edge["to_ref"], "what the edge names")
    identifiers = fields.get("identifiers")
    value = identifiers.get("value") if isinstance(identifiers, Mapping) else None
    row: Row = {
        "id": fields.name("id"),
        "kind": fields.name("kind"),
        "value": fields.problems.required_identifier("entity.identifiers.value", value),
        "label": fields.optional_text("label", most=limits.TITLE_CHARS),
        "created_at": fields.instant("created_at"),
        "updated_at": fields.instant("updated_at"),
    }
    fields.done()
    return row


def check_end(given: object, counts: Mapping[str, int]) -> None:
    """The last line says how many lines of each kind there were."""
    fields = Fields("end", given)
    for name, count in counts.items():
        if fields.integer(name, high=limits.SAFE_INTEGER) != count:
            fields.add(name, f"differs from the {count:,} that stand in the file: it is not complete")
    fields.done()


def from_end(given: object) -> EdgeEnd | None:
    """What an edge begins at, if that is a document or a version."""
    ends = {EdgeEnd.DOCUMENT, EdgeEnd.VERSION}
    value = given.get("from_type") if isinstance(given, Mapping) else None
    return EdgeEnd(value) if isinstance(value, str) and value in ends else None


def captured_from_versions(capture: Row) -> bool:
    """Whether a raw capture's own payload says what the version was derived from."""
    try:
        payload = json.loads(capture["raw_text"])
    except (ValueError, RecursionError):
        return False
    return isinstance(payload, dict) and bool(_derived_from(payload.get("document")))


def _derived_from(document: object) -> object:
    return document.get("derivedFrom") if isinstance(document, dict) else None


def _is_content_hash(value: str, version_id: str) -> bool:
    return value == WITHHELD + version_id or (len(value) == 64 and _HEX.issuperset(value))


def _is_vector(text: str, dims: int) -> bool:
    if len(text) > dims * 32 + 2:
        return False
    try:
        numbers = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(numbers, list) and len(numbers) == dims and all(map(_is_element, numbers))


def _is_element(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= HALF_MAX  # type: ignore[arg-type]


def _tags_of(fields: Fields, field: str, document: Row, here: Here) -> tuple[list[str], frozenset[str]]:
    return check_tags(fields, field, document, exported_tenant=here.header.tenant, tenant=here.tenant_id)
