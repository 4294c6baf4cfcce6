"""Zep: messages of threads (sessions, in older releases), and of graphs the episodes and facts."""

from collections.abc import Iterator, Mapping
from typing import Any

from corbits_memory.cli.imports.items import Found, Refused, Skipped
from corbits_memory.cli.imports.movers.records import Record
from corbits_memory.cli.imports.movers.values import (
    BadRecordError,
    attributes,
    identifier,
    instant,
    item,
    items,
    mapping,
    required_id,
    text,
)

ADAPTER = "zep"
ARRAYS = frozenset({"threads", "sessions", "episodes", "edges", "items"})
_ASSISTANTS = frozenset({"assistant", "ai"})
_KEPT = ("user_id", "graph_id", "role", "role_type", "source", "source_description", "name")


def read(record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    found = mapping(record.value)
    if isinstance(found.get("messages"), list):
        yield from _thread(found, record, defaults)
    elif text(found.get("fact")):
        yield _fact(found, record, defaults)
    elif "content" in found:
        yield _said(found, record.origin, defaults, thread=None)
    else:
        raise BadRecordError("is no thread, episode or fact")


def _thread(thread: Mapping[str, Any], record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    # An answer of the API doesn't name the thread that was asked for; its file does, we hope.
    name = identifier(thread.get("thread_id"), thread.get("session_id"), thread.get("uuid"), record.stem)
    about = {"user_id": thread.get("user_id")}
    for number, message in enumerate(items(thread.get("messages"))):
        origin = f"{record.origin} message {number}"
        try:
            yield _said({**about, **mapping(message)}, origin, defaults, thread=name)
        except BadRecordError as error:
            yield Refused(origin, str(error))


def _said(said: Mapping[str, Any], origin: str, defaults: Mapping[str, Any], *, thread: str | None) -> Found:
    """A message, or an episode: of a conversation, or a text or JSON that somebody put into a graph."""
    uuid = required_id("uuid", said.get("uuid"), said.get("uuid_"))
    content = text(said.get("content"))
    if content is None:
        return Skipped(origin)
    role = identifier(said.get("role_type"), said.get("role"))
    name = identifier(said.get("name"), said.get("role"), role)
    is_message = thread is not None or role is not None
    return item(
        origin,
        defaults,
        adapter=ADAPTER,
        ref=[uuid],
        text=content,
        title=None,
        kind="message" if is_message else "episode",
        author=name if is_message else identifier(said.get("user_id")),
        thread=thread or identifier(said.get("thread_id"), said.get("session_id")),
        occurred_at=instant(said.get("reference_time"), said.get("created_at")),
        generator_agent_id=name if role in _ASSISTANTS else None,
        attributes=attributes({key: said.get(key) for key in _KEPT}, mapping(said.get("metadata"))),
    )


def _fact(fact: Mapping[str, Any], record: Record, defaults: Mapping[str, Any]) -> Found:
    """Zep's own word, and from when to when it holds."""
    return item(
        record.origin,
        defaults,
        adapter=ADAPTER,
        ref=[required_id("uuid", fact.get("uuid"), fact.get("uuid_"))],
        text=str(fact["fact"]),
        title=None,
        kind="fact",
        author=identifier(fact.get("user_id")),
        occurred_at=instant(fact.get("created_at"), fact.get("valid_at")),
        valid_from=instant(fact.get("valid_at")),
        valid_until=instant(fact.get("invalid_at"), fact.get("expired_at")),
        generator_agent_id=ADAPTER,
        attributes=attributes(
            {key: fact.get(key) for key in (*_KEPT, "source_node_uuid", "target_node_uuid")},
            mapping(fact.get("attributes")),
        ),
    )
