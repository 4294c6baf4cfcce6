"""A request before it is sent. No I/O, so that one description serves both clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from corbits_memory.wire.requests import IDEMPOTENCY_KEY_HEADER
from corbits_memory.wire.responses import Response

R = TypeVar("R", bound=Response, covariant=True)

Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to send."""

    data: bytes
    filename: str
    mime_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[R]):
    """One request below a tenant's path, and the model of its answer."""

    method: str
    path: str
    answer: type[R]
    body: Mapping[str, Any] | None = None
    file: Upload | None = None
    """Sent with the fields of ``body`` as a form."""
    parameters: Parameters = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Whether sending it twice does what sending it once does."""
    own_key: bool = False
    """Whether its idempotency key is of the client's making: a server that keeps none may have it without."""

    def without_key(self) -> "Call[R]":
        """The same, for a server that keeps no keys; then nobody may send it twice."""
        headers = {name: value for name, value in self.headers.items() if name != IDEMPOTENCY_KEY_HEADER}
        return replace(self, headers=headers, repeatable=False, own_key=False)
