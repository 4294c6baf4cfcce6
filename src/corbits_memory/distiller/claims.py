"""Claims, and which entries they are made of. Pure functions."""

import hashlib
from collections.abc import Sequence
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import LineageClass, Provenance, TemporalClass, VersionStatus
from corbits_memory.distiller.entries import DistillEntry, Write
from corbits_memory.errors import InvalidInputError
from corbits_memory.wire.feed import FeedResponse

DISTILLER_AGENT_ID = "resident-distiller"
ADAPTER = "distiller"


def build_distilled_claim(
    *,
    title: str,
    text: str,
    source_access_tags: Sequence[str],
    derived_from_version_ids: Sequence[str],
    generator_agent_id: str = DISTILLER_AGENT_ID,
    kind: str | None = None,
    temporal_class: TemporalClass | str | None = None,
    valid_from: str | None = None,
    valid_until: str | None = None,
    supports: Sequence[str] = (),
    contradicts: Sequence[str] = (),
    external_ref: str | None = None,
) -> dict[str, Any]:
    """The body of an add: an inferred claim with the tags of its source and no others.

    With an ``external_ref`` (see :func:`claim_ref`), making it again makes a version of the same document. Raises
    ``InvalidInputError`` for a claim without title, text or source.
    """
    if not title.strip() or not text.strip():
        raise InvalidInputError("a claim needs a title and a text")
    if not derived_from_version_ids:
        raise InvalidInputError("a claim needs the version that it is derived from")
    optional = {
        "kind": kind,
        "temporal_class": None if temporal_class is None else str(temporal_class),
        "valid_from": valid_from,
        "valid_until": valid_until,
        "supports": list(supports) or None,
        "contradicts": list(contradicts) or None,
        "external_ref": external_ref,
        "adapter": None if external_ref is None else ADAPTER,
    }
    return {
        "title": title,
        "text": text,
        "access_tags": list(source_access_tags),
        "generator_agent_id": generator_agent_id,
        "provenance": str(Provenance.INFERRED),
        "lineage_class": str(LineageClass.DERIVED),
        "derived_from": list(derived_from_version_ids),
        **{name: value for name, value in optional.items() if value is not None},
    }


def claim_ref(sources: Sequence[str], *, generator_agent_id: str, claims_of: str = "") -> str:
    """The name of an agent's claim about some sources, whatever it says: a later one is a new version of it.

    ``claims_of`` tells apart agents of one id that act for several principals.
    """
    hashed = hashlib.sha256()
    for part in (generator_agent_id, claims_of, *sorted(sources)):
        # Its length in front, so that no two lists run together to the same bytes.
        encoded = part.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return f"claim:{hashed.hexdigest()}"


def claim_of(entry: DistillEntry, write: Write, *, generator_agent_id: str, claims_of: str) -> dict[str, Any]:
    """The add that a :class:`Write` about an entry stands for.

    Its name comes from the source's document, so that a new version of the source renews the claim.
    """
    return build_distilled_claim(
        title=write.title,
        text=write.text,
        # An add names at most so many. Fewer readers are no leak.
        source_access_tags=entry.access_tags[: limits.ACCESS_TAGS],
        derived_from_version_ids=[entry.version_id],
        generator_agent_id=generator_agent_id,
        kind=write.kind,
        temporal_class=write.temporal_class,
        valid_from=write.valid_from,
        valid_until=write.valid_until,
        supports=write.supports,
        contradicts=write.contradicts,
        external_ref=claim_ref(
            [entry.document_id or entry.version_id],
            generator_agent_id=generator_agent_id,
            claims_of=claims_of,
        ),
    )


def should_process_feed_entry(entry: DistillEntry, agent_id: str = DISTILLER_AGENT_ID) -> bool:
    """Whether an entry is not this agent's own: nothing is distilled from what was distilled."""
    return entry.generator_agent_id != agent_id


def worth_distilling(entry: DistillEntry, agent_id: str = DISTILLER_AGENT_ID) -> bool:
    """:func:`should_process_feed_entry`, and neither replaced already nor any other agent's claim.

    Two distillers that read each other's claims would write for ever.
    """
    claim = entry.source_class is LineageClass.DERIVED and entry.generator_agent_id is not None
    return (
        should_process_feed_entry(entry, agent_id)
        and entry.status is not VersionStatus.SUPERSEDED
        and not claim
    )


def resolve_next_cursor(page: FeedResponse, *, poison: bool = False) -> int | None:
    """Where to go on after a page: always at its end. One that was poison (``poison``) is not read again."""
    return page.next_cursor
