"""A process that uses a server: says so in JSON, then obeys lines of its standard input.

``python -m tests.embedded.user DATA_DIR`` answers ``{"url", "pid", "fresh"}``, or ``{"error"}`` and exit code
1. A line that is SQL is run and its rows are answered; ``ensure`` and ``stop`` call the methods; the end of
input ends the process without a word.
"""

import json
import sys
from pathlib import Path

import psycopg

from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError


def main() -> None:
    try:
        server = EmbeddedPostgres.start(Path(sys.argv[1]))
    except EmbeddedPostgresError as exc:
        say({"error": exc.message})
        sys.exit(1)
    say({"url": server.url, "pid": server.pid, "fresh": server.fresh})
    for line in sys.stdin:
        say(obey(server, line.strip()))


def obey(server: EmbeddedPostgres, line: str) -> object:
    if line == "stop":
        server.stop()
        return "stopped"
    if line == "ensure":
        server.ensure_running()
        return server.pid
    with psycopg.connect(server.url, autocommit=True) as conn:
        cursor = conn.execute(line.encode())
        return cursor.fetchall() if cursor.description else cursor.statusmessage


def say(value: object) -> None:
    print(json.dumps(value, default=str), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
