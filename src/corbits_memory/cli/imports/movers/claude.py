"""Claude: ``conversations.json`` of its data export, each conversation a list of messages."""

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

ADAPTER = "claude"
_SPEAKERS = {"human": "user", "user": "user", "assistant": "assistant"}


def read(record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """The messages, and the texts that were attached to them as documents of their own."""
    conversation = mapping(record.value)
    if not isinstance(conversation.get("chat_messages"), list):
        raise BadRecordError("is no conversation: it has no chat_messages")
    name = required_id("uuid", conversation.get("uuid"))
    about = {
        "thread": name,
        "attributes": attributes(
            {
                "account": mapping(conversation.get("account")).get("uuid"),
                "project": mapping(conversation.get("project")).get("uuid"),
            }
        ),
    }
    for number, message in enumerate(items(conversation.get("chat_messages"))):
        origin = f"{record.origin} message {number}"
        try:
            yield from _message(
                mapping(message), origin, defaults, conversation=conversation, name=name, about=about
            )
        except BadRecordError as error:
            yield Refused(origin, str(error))


def _message(
    message: Mapping[str, Any],
    origin: str,
    defaults: Mapping[str, Any],
    *,
    conversation: Mapping[str, Any],
    name: str,
    about: Mapping[str, Any],
) -> Iterator[Found]:
    uuid = required_id("uuid", message.get("uuid"))
    author = _SPEAKERS.get(str(message.get("sender")))
    if author is None:
        raise BadRecordError("has no sender that is known")
    shared = {
        **about,
        "author": author,
        "occurred_at": instant(message.get("created_at"), conversation.get("created_at")),
        "generator_agent_id": ADAPTER if author == "assistant" else None,
    }
    said = _words(message)
    if said is None:
        yield Skipped(origin)
    else:
        yield item(
            origin,
            defaults,
            adapter=ADAPTER,
            ref=[name, uuid],
            text=said,
            title=text(conversation.get("name")),
            kind="message",
            **shared,
        )
    for number, attachment in enumerate(items(message.get("attachments"))):
        content = text(mapping(attachment).get("extracted_content"))
        if content is not None:
            yield item(
                f"{origin} attachment {number}",
                defaults,
                adapter=ADAPTER,
                ref=[name, uuid, f"attachment-{number}"],
                text=content,
                title=text(mapping(attachment).get("file_name")),
                kind="attachment",
                **shared,
            )


def _words(message: Mapping[str, Any]) -> str | None:
    """Of the message's blocks those of text: its field ``text`` has stand-ins for the others."""
    blocks = [mapping(block) for block in items(message.get("content"))]
    if not blocks:
        return text(message.get("text"))
    return text("\n\n".join(text(block.get("text")) or "" for block in blocks if block.get("type") == "text"))
