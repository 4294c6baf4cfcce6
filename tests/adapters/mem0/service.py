"""A service that speaks Mem0's documented API: adding is queued, searching is filtered by user."""

import uuid
from typing import Any

from tests.adapters.service import KEY, Buckets, Kept, refused
from tests.models.conftest import Answer, Request

NOW = "2026-06-01T00:00:00.123456-07:00"


class Mem0Service(Buckets):
    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Token {KEY}":
            return refused(401, {"detail": "Invalid token."})
        if request.path.startswith("/v1/ping/"):
            return Answer({"status": "ok", "org_id": "o", "project_id": "p", "user_email": "ann@acme.test"})
        if request.path == "/v3/memories/add/":
            return self._add(request.body)
        if request.path == "/v3/memories/search/":
            return self._search(request.body)
        return refused(404, {"detail": "Not found."})

    def _add(self, body: dict[str, Any]) -> Answer:
        messages = body.get("messages")
        if not messages or not all({"role", "content"} <= message.keys() for message in messages):
            return refused(400, {"messages": ["This field is required."]})
        if not body.get("user_id") or body.get("infer") is not False:
            return refused(400, {"error": "this service keeps what users say as it is"})
        text = "\n".join(message["content"] for message in messages)
        self.kept.append(Kept(body["user_id"], text, body.get("metadata") or {}))
        message = "Memory processing has been queued for background execution"
        return Answer({"message": message, "status": "PENDING", "event_id": str(uuid.uuid4())})

    def _search(self, body: dict[str, Any]) -> Answer:
        filters = body.get("filters") or {}
        if not body.get("query") or not filters.get("user_id"):
            return refused(400, {"error": "query and filters are required"})
        return Answer(
            {
                "results": [
                    {
                        "id": kept.id,
                        "memory": kept.text,
                        "user_id": kept.bucket,
                        "metadata": kept.metadata,
                        "categories": None,
                        "created_at": NOW,
                        "updated_at": NOW,
                        "score": score,
                    }
                    for score, kept in self.found(filters["user_id"], body["query"], body.get("top_k", 10))
                ]
            }
        )
