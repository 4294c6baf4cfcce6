"""Logs of the host's process: structured, on standard error, for people or as JSON lines.

Names, counts and times only; no text of documents or queries, no token and no query string is ever logged.
"""

import logging
import sys
from typing import Any

import structlog

from corbits_memory.server.settings import HostSettings

_FOREIGN = ("uvicorn", "procrastinate", "psycopg", "psycopg.pool", "asyncio", "httpx2", "stamina")


def configure_logging(settings: HostSettings) -> None:
    """Set up the root logger. For the process that is the host, once."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(settings)],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("corbits_memory").setLevel(settings.log_level.upper())
    for name in _FOREIGN:
        # Their messages of lower levels may quote what they were given.
        logging.getLogger(name).setLevel(logging.WARNING)


def _rendering(settings: HostSettings) -> list[Any]:
    if settings.log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    ]
