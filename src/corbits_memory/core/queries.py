"""Named queries: a text holds blocks that begin with ``-- name: <query>`` and a line of purpose."""

import re
from typing import LiteralString, cast

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def parse_queries(text: str) -> dict[str, LiteralString]:
    """The blocks of a text by name. Raises ``ValueError`` when a name stands twice.

    Typed as literal strings, so that a type checker refuses a query that was assembled at run time.
    """
    parts = _HEADING.split(text)
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError("a query is named twice")
    return {name: cast("LiteralString", body.strip()) for name, body in zip(names, bodies, strict=True)}
