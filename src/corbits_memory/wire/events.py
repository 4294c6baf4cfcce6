"""Server-sent events as a client reads them."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. ``data`` is empty where the server only moved ``id`` on; what begins with a colon is not told."""

    id: str | None
    name: str
    data: str


async def read_events(lines: AsyncIterable[str]) -> AsyncIterator[ServerEvent]:
    """The events in the lines of a stream (without their ends); a last one that is not whole is left out."""
    fields: dict[str, list[str]] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields.setdefault(name, []).append(value.removeprefix(" "))
            continue
        if "id" in fields or "data" in fields:
            yield ServerEvent(
                id=fields["id"][-1] if "id" in fields else None,
                name=fields.get("event", ["message"])[-1],
                data="\n".join(fields.get("data", [])),
            )
        fields = {}
