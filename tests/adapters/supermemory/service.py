"""A service that speaks Supermemory's documented API: documents are queued, and found by passages and memories."""

import re
from typing import Any

from tests.adapters.service import KEY, Buckets, Kept, refused
from tests.models.conftest import Answer, Request

NOW = "2026-06-01T00:00:00.123Z"
TAG = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SupermemoryService(Buckets):
    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return refused(401, {"error": "Unauthorized", "details": "Invalid API key"})
        if request.path == "/v3/documents":
            return self._add(request.body)
        if request.path == "/v4/search":
            return self._search(request.body)
        return refused(404, {"error": "Not found"})

    def _add(self, body: dict[str, Any]) -> Answer:
        tag, metadata = body.get("containerTag"), body.get("metadata") or {}
        if not body.get("content") or not isinstance(tag, str) or not TAG.fullmatch(tag):
            return refused(400, {"error": "Invalid request", "details": "containerTag or content"})
        if not all(isinstance(value, (str, int, float, bool)) for value in metadata.values()):
            return refused(400, {"error": "Invalid request", "details": "metadata"})
        kept = Kept(tag, body["content"], metadata)
        self.kept.append(kept)
        return Answer({"id": kept.id, "status": "queued"})

    def _search(self, body: dict[str, Any]) -> Answer:
        tag = body.get("containerTag")
        if not body.get("q") or not isinstance(tag, str) or not TAG.fullmatch(tag):
            return refused(400, {"error": "Invalid request"})
        if not 1 <= body.get("limit", 10) <= 100:
            return refused(400, {"error": "Invalid request", "details": "limit"})
        results: list[dict[str, Any]] = []
        for score, kept in self.found(tag, body["q"], body.get("limit", 10)):
            about = {"metadata": kept.metadata, "updatedAt": NOW}
            results.append({"id": f"chunk_{kept.id}", "chunk": kept.text, "similarity": score, **about})
            if body.get("searchMode") == "hybrid":
                results.append(
                    {
                        "id": f"mem_{kept.id}",
                        "memory": "It is about animals.",
                        "similarity": score / 2,
                        **about,
                    }
                )
        found = results[: body.get("limit", 10)]
        return Answer({"results": found, "total": len(found), "timing": 3})
