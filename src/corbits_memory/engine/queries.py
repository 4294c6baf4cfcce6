"""Named queries: ``sql/<file>.sql`` holds blocks that begin with ``-- name: <query>`` and a line of purpose."""

import re
from functools import cache
from importlib import resources
from typing import LiteralString, cast

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_queries(file: str) -> dict[str, LiteralString]:
    """The queries of ``sql/<file>.sql`` by name.

    Typed as literal strings, so that a type checker refuses a query that was assembled at run time.
    """
    text = resources.files(__package__).joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    parts = _HEADING.split(text)
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{file}.sql names a query twice")
    return {name: cast("LiteralString", body.strip()) for name, body in zip(names, bodies, strict=True)}
