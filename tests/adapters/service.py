"""What the services of vendors have in common: buckets of texts, found by the words that they share with a query."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from corbits_memory.core.text import words
from tests.models.conftest import Answer

KEY = "key-7f3a"


@dataclass
class Kept:
    bucket: str
    text: str
    metadata: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    at: float = field(default_factory=time.monotonic)


class Buckets:
    """Keeps what it is given, and finds it only after ``delay`` seconds."""

    def __init__(self, *, delay: float = 0.0) -> None:
        self.kept: list[Kept] = []
        self.delay = delay

    def found(self, bucket: str, query: str, limit: int) -> list[tuple[float, Kept]]:
        wanted = set(words(query))
        scored = [
            (len(wanted & set(words(kept.text))) / len(wanted), kept)
            for kept in self.kept
            if kept.bucket == bucket and wanted and time.monotonic() - kept.at >= self.delay
        ]
        best = sorted((entry for entry in scored if entry[0] > 0.1), key=lambda entry: -entry[0])
        return best[:limit]


def refused(status: int, body: Any) -> Answer:
    return Answer(body, status=status)
