"""An entry of the feed as JSON: what pages, streams and webhooks say alike."""

from typing import Any

from corbits_memory.core.instants import iso_instant
from corbits_memory.ports import FeedEntry, FeedVersion


def entry_json(entry: FeedEntry) -> dict[str, Any]:
    """Its JSON names; a retraction has its ids alone, a promotion its number."""
    told: dict[str, Any] = {"feedSeq": entry.seq, "op": str(entry.op)}
    if entry.version_id is not None:
        told["versionId"] = entry.version_id
    if entry.document_id is not None:
        told["documentId"] = entry.document_id
    return told if entry.version is None else told | _version(entry.version)


def _version(version: FeedVersion) -> dict[str, Any]:
    told: dict[str, Any] = {
        "kind": version.kind,
        "title": version.title,
        "status": str(version.status),
        "createdByKind": str(version.created_by_kind),
        "generatorAgentId": version.generator_agent_id,
        "provenance": version.provenance,
        "sourceClass": str(version.source_class),
        "occurredAt": iso_instant(version.occurred_at),
        "createdAt": iso_instant(version.created_at),
        "accessTags": list(version.access_tags),
    }
    if version.text is not None:
        told["text"] = version.text
    if version.text_truncated:
        told["textTruncated"] = True
    return told
