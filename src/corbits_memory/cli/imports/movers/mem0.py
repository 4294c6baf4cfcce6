"""Mem0: what ``get_all`` and its exports answer, ``{"results": [memory, …]}`` or the memories alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from corbits_memory.cli.imports.items import Found
from corbits_memory.cli.imports.movers.records import Record
from corbits_memory.cli.imports.movers.values import (
    BadRecordError,
    attributes,
    identifier,
    instant,
    item,
    mapping,
    required_id,
    text,
)

ADAPTER = "mem0"
ARRAYS = frozenset({"results", "memories"})
_KEPT = ("user_id", "agent_id", "app_id", "run_id", "actor_id", "role", "categories", "updated_at")


def read(record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """Mem0 wrote the sentence, so it is Mem0's word about somebody; who that is, is its author."""
    memory = mapping(record.value)
    said = text(memory.get("memory"), memory.get("text"), memory.get("content"))
    if said is None:
        raise BadRecordError("is no memory with a text")
    yield item(
        record.origin,
        defaults,
        adapter=ADAPTER,
        ref=[required_id("id", memory.get("id"))],
        text=said,
        title=None,
        kind="memory",
        author=identifier(memory.get("user_id"), memory.get("actor_id"), memory.get("agent_id")),
        thread=identifier(memory.get("run_id")),
        occurred_at=instant(memory.get("created_at"), memory.get("updated_at")),
        valid_until=instant(memory.get("expiration_date")),
        generator_agent_id=ADAPTER,
        attributes=attributes({name: memory.get(name) for name in _KEPT}, mapping(memory.get("metadata"))),
    )
