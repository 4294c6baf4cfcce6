"""Mem0 as a document store."""

from collections.abc import Sequence

import httpx2

from corbits_memory.adapters import notes
from corbits_memory.adapters.bucket import BucketStore
from corbits_memory.adapters.vendor import TIMEOUT_SECONDS, Vendor, VendorApi

__all__ = ["Mem0DocumentStore", "user_id_of"]

ADD, SEARCH = "/v3/memories/add/", "/v3/memories/search/"
MEM0 = Vendor(
    name="Mem0", scheme="Token", told="Mem0 API {call} failed: HTTP {status} — {body}", body_chars=500
)


class Mem0DocumentStore(BucketStore):
    """Keeps documents in Mem0's platform, verbatim: Mem0's model is not asked to extract anything.

    One Mem0 user a principal; what Mem0 accepts is found once Mem0 has worked it in. Versions, grants, lists and
    forgetting are beyond it: docs/adapters.md.
    """

    adapter = "mem0"
    name = "Mem0"

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str = "https://api.mem0.ai",
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """``timeout_seconds``: for each call, retries included. Raises ``ConfigError``. No I/O."""
        super().__init__(
            VendorApi(
                MEM0, key=api_key, base_url=base_url, timeout_seconds=timeout_seconds, transport=transport
            )
        )

    async def _send(self, note: notes.Note, tenant_id: str, principal_id: str) -> None:
        body = {
            "messages": [{"role": "user", "content": note.content}],
            "user_id": user_id_of(tenant_id, principal_id),
            "infer": False,
            "metadata": note.metadata,
        }
        # Sent once: after an error in the middle nobody knows whether it was kept.
        await self._api.post(ADD, body, call=ADD, repeatable=False, private=(note.content,))

    async def _ask(self, query: str, limit: int, tenant_id: str, principal_id: str) -> Sequence[notes.Row]:
        user_id = user_id_of(tenant_id, principal_id)
        body = {"query": query, "filters": {"user_id": user_id}, "top_k": limit}
        answer = await self._api.post(SEARCH, body, call=SEARCH, repeatable=True, private=(query,))
        found = [
            row for row in self._rows(answer, "results", "memories") if row.get("user_id") in (None, user_id)
        ]
        return [
            notes.row_of(row, texts=("memory", "text"), score="score", updated="updated_at") for row in found
        ]


def user_id_of(tenant_id: str, principal_id: str) -> str:
    """``4:acme:5:alice``. Lengths are in code points, so that no two pairs of names share one."""
    return f"{len(tenant_id)}:{tenant_id}:{len(principal_id)}:{principal_id}"
