"""Access tags: what they may look like, and which ones an ``add`` writes.

A tag names a group of documents (``memory.space:eng``). It grants nothing by itself: a grant on the tag
does. Tags that begin with a reserved prefix come from the memory only.
"""

import unicodedata
from collections.abc import Iterable

from corbits_memory.core.limits import TAG_CHARS
from corbits_memory.ports import Share

OWNER_PREFIX = "memory.owner:"
TENANT_PREFIX = "memory.tenant:"
DOCUMENT_PREFIX = "memory.doc:"
RESERVED_PREFIXES = (OWNER_PREFIX, TENANT_PREFIX, DOCUMENT_PREFIX)


def owner_tag(principal_id: str) -> str:
    return f"{OWNER_PREFIX}{principal_id}"


def tenant_tag(tenant_id: str) -> str:
    return f"{TENANT_PREFIX}{tenant_id}"


def document_tag(document_id: str) -> str:
    return f"{DOCUMENT_PREFIX}{document_id}"


def tag_problem(tag: str, *, principal_id: str, reserved_too: bool = False) -> str | None:
    """Why this caller may not put this tag on a document; None when it may. Never repeats the tag.

    ``reserved_too``: a claim may copy the reserved tags of what it is derived from; the store checks that
    they stand there.
    """
    tag = tag.strip()
    if tag == owner_tag(principal_id):
        return None
    if not tag:
        return "must not be blank"
    if len(tag) > TAG_CHARS:
        return f"must be at most {TAG_CHARS} characters"
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in tag):
        return "must not contain control characters"
    if "*" in tag:
        return "must not contain *"
    if ":" not in tag:
        return "must contain a colon, like memory.space:eng"
    if tag.startswith(RESERVED_PREFIXES) and not reserved_too:
        return "begins with a reserved prefix; use share for the tenant and for principals"
    return None


def resolve_access_tags(
    principal_id: str,
    tenant_id: str,
    access_tags: Iterable[str] | None = None,
    share: Share | None = None,
    *,
    peer_owner_tags: bool = False,
) -> tuple[str, ...]:
    """The tags that a document gets, each once, in this order.

    The caller's owner tag, the explicit tags, the tenant's tag when shared with it, then the tags of
    ``share``. Surrounding blanks go, and so do blank tags. ``peer_owner_tags`` also writes the owner tag
    of every principal shared with, as the original did; that shows the document to whoever may read the
    peer's own documents, so it is off.
    """
    share = share or Share()
    tags = [owner_tag(principal_id), *_stripped(access_tags or ())]
    if share.tenant:
        tags.append(tenant_tag(tenant_id))
    if peer_owner_tags:
        tags.extend(owner_tag(peer) for peer in _stripped(share.principals))
    tags.extend(_stripped(share.tags))
    return tuple(dict.fromkeys(tags))


def shared_peers(principal_id: str, share: Share) -> tuple[str, ...]:
    """The principals to share with, each once, without blanks and without the one who shares."""
    peers = dict.fromkeys(_stripped(share.principals))
    peers.pop(principal_id.strip(), None)
    return tuple(peers)


def _stripped(values: Iterable[str]) -> Iterable[str]:
    return (value.strip() for value in values if value.strip())
