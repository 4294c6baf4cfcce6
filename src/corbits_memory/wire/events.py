"""Server-sent events as a client reads them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. ``data`` is empty where the server only moved ``id`` on; what begins with a colon is not told."""

    id: str | None
    name: str
    data: str


class EventReader:
    """Makes events of the lines of one stream; one that is not whole at its end is never given."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {}

    def take(self, line: str) -> ServerEvent | None:
        """The event that this line (without its end) completes, if it does."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        if "id" not in fields and "data" not in fields:
            return None
        return ServerEvent(
            id=fields["id"][-1] if "id" in fields else None,
            name=fields.get("event", ["message"])[-1],
            data="\n".join(fields.get("data", [])),
        )
