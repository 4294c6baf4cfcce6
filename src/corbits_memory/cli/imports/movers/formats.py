"""Which exports are known, and how each is read."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corbits_memory.cli.imports.items import Found, Refused
from corbits_memory.cli.imports.movers import chatgpt, claude, langgraph, mem0, zep
from corbits_memory.cli.imports.movers.records import Record, read_records
from corbits_memory.cli.imports.movers.values import BadRecordError

_JSON = re.compile(r"(?!\.).*\.(?:json|jsonl|ndjson)", re.IGNORECASE)
_CONVERSATIONS = re.compile(r"conversations(?:[-_ ]?\d+)?\.json")
"""Large exports are cut into several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    read: Callable[[Record, Mapping[str, Any]], Iterator[Found]]
    """What is in a record. Raises ``BadRecordError`` for one that is no such record."""
    files: re.Pattern[str] = _JSON
    """Names in a folder or zip file that count."""
    arrays: frozenset[str] = frozenset()


FORMATS: Mapping[str, Format] = {
    "mem0": Format(read=mem0.read, arrays=mem0.ARRAYS),
    "zep": Format(read=zep.read, arrays=zep.ARRAYS),
    "langgraph": Format(read=langgraph.read, arrays=langgraph.ARRAYS),
    "chatgpt": Format(read=chatgpt.read, files=_CONVERSATIONS),
    "claude": Format(read=claude.read, files=_CONVERSATIONS),
}


def read_export(path: Path, kind: Format, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """All that an export holds; ``defaults`` fill in what it does not say."""
    for record in read_records(path, files=kind.files, arrays=kind.arrays):
        if isinstance(record, Refused):
            yield record
            continue
        try:
            yield from kind.read(record, defaults)
        except BadRecordError as error:
            yield Refused(record.origin, str(error))
