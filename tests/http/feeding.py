"""A store in memory that also has a feed, and a reader of event streams."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2

from corbits_memory.config import PushConfig
from corbits_memory.core.enums import CreatedByKind, FeedOp, VersionStatus
from corbits_memory.engine.outbound import Outbound
from corbits_memory.errors import InvalidCursorError, MemoryError, NotFoundError
from corbits_memory.ports import (
    Access,
    AccessOf,
    AddResult,
    CreatedSubscription,
    DeadLetter,
    FeedEntry,
    FeedPage,
    FeedQuery,
    FeedVersion,
    NewDocument,
    NewSubscription,
    Subscription,
)
from corbits_memory.testing import FakeDocumentStore


class FeedingStore(FakeDocumentStore):
    """Numbers every add of a tenant; a principal is told of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, list[tuple[str, FeedEntry]]] = {}
        self.waits = 0
        self.feed_queries: list[FeedQuery] = []
        self.failure: Exception | None = None
        self._news = asyncio.Event()

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        answers = await super().add(
            tenant_id=tenant_id, principal_id=principal_id, documents=documents, access=access
        )
        events = self.events.setdefault(tenant_id, [])
        for answer, document in zip(answers, documents, strict=True):
            assert isinstance(answer, AddResult)
            at = self.documents[-1].at
            entry = FeedEntry(
                seq=len(events) + 1,
                op=FeedOp.UPSERT,
                at=at,
                version_id=answer.version_id,
                document_id=answer.document_id,
                version=FeedVersion(
                    kind=document.kind,
                    title=document.title,
                    status=VersionStatus.ACTIVE,
                    created_by_kind=CreatedByKind.HUMAN,
                    generator_agent_id=document.generator_agent_id,
                    provenance="unknown",
                    occurred_at=at,
                    created_at=at,
                    access_tags=(),
                    text=document.text,
                ),
            )
            events.append((principal_id, entry))
        self._news.set()
        return answers

    async def feed(
        self, *, tenant_id: str, principal_id: str, query: FeedQuery, access: Access | None = None
    ) -> FeedPage:
        self.feed_queries.append(query)
        if self.failure is not None:
            raise self.failure
        events = self.events.get(tenant_id, [])
        if query.after > len(events):
            raise InvalidCursorError
        raw = [(owner, e) for owner, e in events if e.seq > query.after and e.op in query.ops][: query.limit]
        last = raw[-1][1].seq if raw else None
        return FeedPage(
            entries=tuple(entry for owner, entry in raw if owner == principal_id),
            next_cursor=last,
            has_more=last is not None and last < len(events),
            position=last or query.after,
        )

    async def feed_changed(self, *, tenant_id: str, after: int, seconds: float) -> None:
        self.waits += 1
        if len(self.events.get(tenant_id, [])) > after:
            return
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()


class PushingStore(FeedingStore):
    """Also takes subscriptions whose URLs have an allowed form; delivers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.access_of: AccessOf | None = None
        self.subscribed: dict[str, dict[str, Subscription]] = {}
        self.replayed: list[Sequence[int] | None] = []

    def judge_by(self, access_of: AccessOf) -> None:
        self.access_of = access_of

    async def subscribe(
        self, *, tenant_id: str, principal_id: str, subscription: NewSubscription
    ) -> CreatedSubscription:
        Outbound(PushConfig()).target(subscription.url)
        of_tenant = self.subscribed.setdefault(tenant_id, {})
        made = Subscription(
            id=f"msub_{len(of_tenant) + 1}",
            url=subscription.url,
            principal_id=subscription.principal_id,
            created_by=principal_id,
            ops=tuple(sorted(subscription.ops)),
            exclude_generator=subscription.exclude_generator,
            include_text=subscription.include_text,
            position=subscription.after or 0,
            failures=0,
            last_error=None,
            last_delivered_at=None,
            created_at=AT,
            dead=1,
        )
        of_tenant[made.id] = made
        return CreatedSubscription(subscription=made, secret="whsec_x")

    async def subscriptions(self, *, tenant_id: str) -> Sequence[Subscription]:
        return list(self.subscribed.get(tenant_id, {}).values())

    async def unsubscribe(self, *, tenant_id: str, principal_id: str, subscription_id: str) -> None:
        self._subscribed(tenant_id, subscription_id)
        del self.subscribed[tenant_id][subscription_id]

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]:
        self._subscribed(tenant_id, subscription_id)
        dead = DeadLetter(seq=7, op=FeedOp.UPSERT, version_id="kver_1", failures=12, error="no", failed_at=AT)
        return [dead][:limit] if after < dead.seq else []

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        self._subscribed(tenant_id, subscription_id)
        self.replayed.append(seqs)
        return 1 if seqs is None else len(seqs)

    def _subscribed(self, tenant_id: str, subscription_id: str) -> None:
        if subscription_id not in self.subscribed.get(tenant_id, {}):
            raise NotFoundError("subscription not found")


AT = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    id: str | None
    name: str | None
    data: Any
    comment: bool = False


async def events_of(answer: httpx2.Response) -> AsyncIterator[Event]:
    """Each block of a stream; a comment, a number alone and the retry line too."""
    fields: dict[str, str] = {}
    comment = False
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            comment = comment or name == ""
            fields[name] = value.removeprefix(" ")
            continue
        data = json.loads(fields["data"]) if "data" in fields else None
        yield Event(fields.get("id"), fields.get("event"), data, comment)
        fields, comment = {}, False


@asynccontextmanager
async def open_stream(client: httpx2.AsyncClient, path: str = "/feed/stream", **more: Any) -> Any:
    """An iterator of the stream's events, the retry line gone."""
    async with client.stream("GET", path, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        events = events_of(answer)
        first = await anext(events)
        assert first == Event(None, None, None)
        yield events
