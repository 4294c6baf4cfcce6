"""Storing what was found, batch by batch, and waiting for its vectors."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from corbits_memory.cli.backend import Json, Loader
from corbits_memory.cli.imports.extracted import extract_all
from corbits_memory.cli.imports.items import Found, Item, Refused, Skipped

BATCH_BYTES = 4 * 1024 * 1024
"""A batch is sent when its text has this size: far below what a server takes at once."""
FAILURES_TOLD = 100
POLL_SECONDS = 0.5
STALLED_SECONDS = 180.0
"""Longer than the lease that a worker killed in the middle leaves on its chunks."""


class Watcher(Protocol):
    """Who follows the import."""

    def stored(self, size: int, documents: int) -> None: ...

    def refused(self, origin: str, problem: str) -> None: ...

    def embedding(self, done: int, total: int) -> None: ...


@dataclass(slots=True)
class Summary:
    """What became of everything."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, str]] = field(default_factory=list)
    pending_vectors: int = 0
    embeddings: bool = True

    @property
    def failed(self) -> int:
        return self.counts["failed"]

    def to_json(self) -> Json:
        names = ("created", "updated", "unchanged", "failed", "skipped")
        return {
            **{name: self.counts[name] for name in names},
            "pendingVectors": self.pending_vectors,
            "embeddingsConfigured": self.embeddings,
            "failures": self.failures,
        }

    def refuse(self, origin: str, problem: str) -> None:
        self.counts["failed"] += 1
        if len(self.failures) < FAILURES_TOLD:
            self.failures.append({"at": origin, "problem": problem})


async def load(backend: Loader, found: Iterable[Found], *, batch_size: int, watcher: Watcher) -> Summary:
    """Add everything; returns when all is durable and found by its words."""
    summary = Summary()
    async for batch in _batches(_sorted_out(found, summary, watcher), batch_size):
        answers = await backend.add_batch([item.body for item in batch])
        for item, answer in zip(batch, answers, strict=True):
            if "error" in answer:
                problem = _problem(answer["error"])
                summary.refuse(item.origin, problem)
                watcher.refused(item.origin, problem)
            else:
                summary.counts[answer["status"]] += 1
        watcher.stored(sum(item.size for item in batch), len(batch))
    return summary


async def wait_for_vectors(backend: Loader, summary: Summary, *, watcher: Watcher, wait: bool) -> None:
    """Until none is pending any more, or nothing has moved for long; ``wait`` off only looks once."""
    told = await backend.capabilities()
    summary.embeddings = bool(told.get("embeddingsConfigured", False))
    summary.pending_vectors = pending = int(told.get("pendingVectors") or 0)
    if not wait or not summary.embeddings:
        return

    async def left() -> int:
        return int((await backend.capabilities()).get("pendingVectors") or 0)

    summary.pending_vectors = await watch_vectors(left, watcher, pending)


async def watch_vectors(left: Callable[[], Awaitable[int]], watcher: Watcher, pending: int) -> int:
    """Until none is ``left`` of those ``pending``, or nothing has moved for long; how many are."""
    total, moved = pending, time.monotonic()
    while pending and time.monotonic() - moved < STALLED_SECONDS:
        watcher.embedding(total - pending, total)
        await anyio.sleep(POLL_SECONDS)
        now = await left()
        if now != pending:
            moved = time.monotonic()
        pending, total = now, max(total, now)
    watcher.embedding(total - pending, total)
    return pending


async def _sorted_out(found: Iterable[Found], summary: Summary, watcher: Watcher) -> AsyncIterator[Item]:
    async for each in extract_all(found):
        if isinstance(each, Item):
            yield each
            continue
        if isinstance(each, Refused):
            summary.refuse(each.origin, each.problem)
            watcher.refused(each.origin, each.problem)
        elif isinstance(each, Skipped):
            summary.counts["skipped"] += 1
            if each.notice:
                watcher.refused(each.origin, f"skipped: {each.notice}")
        watcher.stored(each.size, 0)


async def _batches(items: AsyncIterator[Item], batch_size: int) -> AsyncIterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    async for item in items:
        if batch and (len(batch) == batch_size or size + item.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
    if batch:
        yield batch


def _problem(error: Json) -> str:
    details: Any = error.get("details")
    if isinstance(details, list) and len(details) > 1:
        return "; ".join(f"{found.get('field', '')} {found.get('problem', '')}".strip() for found in details)
    message = error.get("message")
    return message if isinstance(message, str) else json.dumps(error)
