"""Supermemory as a document store."""

import hashlib
import re
from collections.abc import Sequence

import httpx2

from corbits_memory.adapters import notes
from corbits_memory.adapters.bucket import BucketStore
from corbits_memory.adapters.vendor import TIMEOUT_SECONDS, Vendor, VendorApi

__all__ = ["SupermemoryDocumentStore", "container_tag_of"]

ADD, SEARCH = "/v3/documents", "/v4/search"
SUPERMEMORY = Vendor(
    name="Supermemory",
    scheme="Bearer",
    told="Supermemory {call} failed HTTP {status}: {body}",
    body_chars=200,
)
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SupermemoryDocumentStore(BucketStore):
    """Keeps documents in Supermemory, which makes memories of them as it does of any document.

    One container tag a principal; what is accepted is found once Supermemory has worked it in. A hit is a passage of
    a document, or a memory that was made of it. Versions, grants, lists and forgetting are beyond it: docs/adapters.md.
    """

    adapter = "supermemory"
    name = "Supermemory"

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str = "https://api.supermemory.ai",
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """``timeout_seconds``: for each call, retries included. Raises ``ConfigError``. No I/O."""
        super().__init__(
            VendorApi(
                SUPERMEMORY,
                key=api_key,
                base_url=base_url,
                timeout_seconds=timeout_seconds,
                transport=transport,
            )
        )

    async def _send(self, note: notes.Note, tenant_id: str, principal_id: str) -> None:
        body = {
            "content": note.content,
            "containerTag": container_tag_of(tenant_id, principal_id),
            "metadata": note.metadata,
        }
        # Sent once: after an error in the middle nobody knows whether it was kept.
        await self._api.post(ADD, body, call="add", repeatable=False, private=(note.content,))

    async def _ask(self, query: str, limit: int, tenant_id: str, principal_id: str) -> Sequence[notes.Row]:
        body = {
            "q": query,
            "containerTag": container_tag_of(tenant_id, principal_id),
            "searchMode": "hybrid",
            # A document may be found twice, by a passage and by a memory.
            "limit": min(2 * limit, 100),
        }
        answer = await self._api.post(SEARCH, body, call="find", repeatable=True, private=(query,))
        return [
            notes.row_of(row, texts=("memory", "chunk", "content"), score="similarity", updated="updatedAt")
            for row in self._rows(answer, "results")
        ]


def container_tag_of(tenant_id: str, principal_id: str) -> str:
    """``t4_acme_u5_alice``. Lengths are in code points, so that no two pairs of names share one.

    Supermemory takes 100 letters, digits, hyphens, underscores and dots at most; of other names the tag is a hash.
    """
    tag = f"t{len(tenant_id)}_{tenant_id}_u{len(principal_id)}_{principal_id}"
    if _TAG.fullmatch(tag):
        return tag
    return f"h_{hashlib.sha256(tag.encode('utf-8', 'surrogatepass')).hexdigest()}"
