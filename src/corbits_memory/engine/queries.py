"""The engine's named queries, in ``sql/``."""

from functools import cache
from importlib import resources
from typing import LiteralString

from corbits_memory.core.queries import parse_queries


@cache
def load_queries(file: str) -> dict[str, LiteralString]:
    """The queries of ``sql/<file>.sql`` by name."""
    return parse_queries(
        resources.files(__package__).joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    )
