"""ChatGPT: ``conversations.json`` of its data export, each conversation a tree of messages."""

from collections.abc import Iterator, Mapping
from typing import Any

from corbits_memory.cli.imports.items import Found, Refused, Skipped
from corbits_memory.cli.imports.movers.records import Record
from corbits_memory.cli.imports.movers.values import (
    BadRecordError,
    attributes,
    instant,
    item,
    items,
    mapping,
    required_id,
    text,
)

ADAPTER = "chatgpt"
_SPEAKERS = frozenset({"user", "assistant"})
_SPOKEN = frozenset({"text", "multimodal_text", "code"})
"""Content that is shown as a message; others are thoughts, results of tools, settings."""


def read(record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """The messages that the conversation shows: those from its last one back to its first. What was edited away or
    answered anew, and what tools were told, is passed over and counted.
    """
    conversation = mapping(record.value)
    if not isinstance(conversation.get("mapping"), dict):
        raise BadRecordError("is no conversation: it has no mapping")
    name = required_id("id", conversation.get("conversation_id"), conversation.get("id"))
    nodes: Mapping[str, Any] = conversation["mapping"]
    shown = _shown(nodes, conversation.get("current_node"))
    when = instant(conversation.get("create_time"))
    for node in shown:
        origin = f"{record.origin} message {node}"
        message = mapping(nodes[node]).get("message")
        try:
            when = instant(mapping(message).get("create_time")) or when
            yield _message(
                mapping(message), node, origin, defaults, conversation=conversation, name=name, when=when
            )
        except BadRecordError as error:
            yield Refused(origin, str(error))
    for node in nodes:
        if node not in shown and _spoken(mapping(mapping(nodes[node]).get("message"))):
            yield Skipped(f"{record.origin} message {node}")


def _shown(nodes: Mapping[str, Any], last: Any) -> dict[str, None]:
    """From the first to the last; all, as they stand, where nothing says which was the last."""
    if not isinstance(last, str) or last not in nodes:
        return dict.fromkeys(nodes)
    path: dict[str, None] = {}
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = None
        last = mapping(nodes[last]).get("parent")
    return dict.fromkeys(reversed(path))


def _message(
    message: Mapping[str, Any],
    node: str,
    origin: str,
    defaults: Mapping[str, Any],
    *,
    conversation: Mapping[str, Any],
    name: str,
    when: str | None,
) -> Found:
    said = _spoken(message)
    if said is None:
        return Skipped(origin)
    role = str(mapping(message.get("author")).get("role"))
    return item(
        origin,
        defaults,
        adapter=ADAPTER,
        # A conversation that was continued elsewhere has messages of the same ids.
        ref=[name, node],
        text=said,
        title=text(conversation.get("title")),
        kind="message",
        author=role,
        thread=name,
        occurred_at=when,
        generator_agent_id=ADAPTER if role == "assistant" else None,
        attributes=attributes(
            {
                "model": mapping(message.get("metadata")).get("model_slug"),
                "gizmo_id": conversation.get("gizmo_id"),
                "is_archived": conversation.get("is_archived") or None,
            }
        ),
    )


def _spoken(message: Mapping[str, Any]) -> str | None:
    """What somebody said to somebody, in words; None for anything else."""
    content = mapping(message.get("content"))
    if mapping(message.get("author")).get("role") not in _SPEAKERS:
        return None
    if mapping(message.get("metadata")).get("is_visually_hidden_from_conversation"):
        return None
    if message.get("recipient") not in {None, "all"} or content.get("content_type", "text") not in _SPOKEN:
        return None
    parts = [_words(part) for part in items(content.get("parts"))] or [text(content.get("text"))]
    return text("\n\n".join(part for part in parts if part))


def _words(part: Any) -> str | None:
    """A part is text, or an object: what was spoken has its transcription, a picture has no words."""
    return text(part) or text(mapping(part).get("text"))
