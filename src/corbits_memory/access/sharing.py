"""Sharing with people: grants on a document's own tag, written and taken back.

A grant's id follows from document and peer, so that sharing twice writes one grant, and unsharing finds it.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from corbits_memory.access.tags import document_tag, owner_tag
from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.ports import GrantRule

SHARE_CONDITION = "memoryShare"
SEARCH = "search"

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGrants:
    """One share: the document, the version that was shared first, who shares, and with whom."""

    tenant_id: str
    document_id: str
    source_version_id: str
    shared_by: str
    principals: Sequence[str]


def share_grant_id(tenant_id: str, document_id: str, principal_id: str) -> str:
    """``mgrt_`` and 22 characters, the same for the same document and peer."""
    key = "\x1f".join((tenant_id, document_id, principal_id))
    number = int.from_bytes(hashlib.sha256(key.encode()).digest(), "big")
    digits = []
    for _ in range(_ID_CHARS):
        number, place = divmod(number, len(_BASE62))
        digits.append(_BASE62[place])
    return "mgrt_" + "".join(digits)


def build_share_grants(share: ShareGrants) -> list[GrantRule]:
    """One grant a peer to search the document; blanks and the sharer get none."""
    peers = dict.fromkeys(peer.strip() for peer in share.principals)
    return [
        GrantRule(
            id=share_grant_id(share.tenant_id, share.document_id, peer),
            tenant_id=share.tenant_id,
            principal_id=peer,
            resource=document_tag(share.document_id),
            action=SEARCH,
            effect=Effect.ALLOW,
            origin=GrantOrigin.SYSTEM,
            conditions={
                SHARE_CONDITION: {
                    "sharedBy": share.shared_by,
                    "sourceVersionId": share.source_version_id,
                    "documentId": share.document_id,
                    "tenantId": share.tenant_id,
                }
            },
            created_by=share.shared_by,
        )
        for peer in peers
        if peer and peer != share.shared_by
    ]


def common_readers(foreign: Sequence[Collection[str]], principal_id: str) -> frozenset[str] | None:
    """The tags that a claim may carry: what each source of somebody else carries, and its maker's own.

    None where nobody else owns a source: then anything.
    """
    if not foreign:
        return None
    return frozenset.intersection(*map(frozenset, foreign)) | {owner_tag(principal_id)}


def split_audience_widen(
    source_tags: Collection[str], proposed_tags: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``(allowed, needs approval)``, each in the order proposed. Allowed is what the source carries too."""
    proposed = tuple(dict.fromkeys(proposed_tags))
    allowed = tuple(tag for tag in proposed if tag in source_tags)
    return allowed, tuple(tag for tag in proposed if tag not in source_tags)


def share_widen_receipt(
    *, approved_by: str, tags: Sequence[str], source_version_id: str, approved_at: datetime
) -> dict[str, Any]:
    """What a version's attributes can keep of an owner's approval to show a claim to more readers."""
    moment = approved_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "approvedBy": approved_by,
        "approvedAt": moment,
        "tags": list(tags),
        "sourceVersionId": source_version_id,
    }
