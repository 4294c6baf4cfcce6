"""Four processes over one Postgres, two that answer and two that work; some are killed while clients write."""

import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import psycopg
import pytest

from tests.e2e.support import Server, corbits_memory, start
from tests.embedded.support import wait_until
from tests.engine.conftest import embed_words
from tests.models.conftest import Answer, ModelServer, Request
from tests.support.postgres import NewDatabase

TOKEN = "cmt_" + "n" * 40
MEMORY = "/api/tenants/default/memory"
WRITERS, DOCUMENTS = 4, 40


@pytest.fixture
def environ(new_database: NewDatabase) -> Iterator[dict[str, str]]:
    def slowly(request: Request) -> Answer:
        time.sleep(0.02)
        return embed_words(request)

    with ModelServer() as models:
        models.script(slowly)
        yield {
            "DATABASE_URL": new_database(),
            "EMBED_BASE_URL": models.url,
            "EMBED_MODEL": "words",
            "CORBITS_MEMORY_TOKEN": TOKEN,
            # Vectors are left to whichever process works.
            "ADD_EMBED_TIMEOUT_MS": "1",
        }


def write(writer: int, nodes: list[str]) -> list[dict[str, Any]]:
    """Documents, each to the next node; where one is gone, the same request to another."""
    answers = []
    with httpx2.Client(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=20) as client:
        for number in range(DOCUMENTS):
            body = {
                "title": f"Note {writer}.{number}",
                "text": f"Lantern {number} of writer{writer}.",
                "external_ref": f"{writer}.{number // 2}",
            }
            key = {"idempotency-key": str(uuid.uuid4())}
            for attempt in range(20):
                node = nodes[(number + attempt) % len(nodes)]
                try:
                    answer = client.post(f"{node}{MEMORY}/add", json=body, headers=key)
                except httpx2.TransportError:
                    continue
                if answer.status_code == 200:
                    answers.append({**answer.json(), **body})
                    break
                assert answer.status_code >= 500, answer.text
                time.sleep(0.1)
            else:
                raise AssertionError("no node took it")
    return answers


def test_nodes_and_workers_share_one_database_and_may_be_killed(environ: dict[str, str]) -> None:
    assert corbits_memory("db", "migrate", **environ).returncode == 0
    workers = [start("worker", **environ) for _ in range(2)]
    try:
        with Server(extra=environ) as first, Server(extra=environ) as second:
            nodes = [first.url, second.url]
            with ThreadPoolExecutor(WRITERS) as pool:
                writing = [pool.submit(write, writer, nodes) for writer in range(WRITERS)]
                time.sleep(0.5)
                workers[0].kill()
                time.sleep(0.5)
                second.process.kill()
                answers = [answer for done in writing for answer in done.result()]
            assert len(answers) == WRITERS * DOCUMENTS
            with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as conn:

                def rows(query: str) -> list[tuple[Any, ...]]:
                    return conn.execute(query).fetchall()

                # Each that was answered is there, once: versions 1 and 2 of each document, the second active.
                stored = rows("SELECT id, version, status FROM memory.version ORDER BY id")
                assert {answer["versionId"] for answer in answers} == {row[0] for row in stored}
                assert len(stored) == len(answers)
                assert rows("SELECT count(*), count(DISTINCT feed_seq) FROM memory.version") == [
                    (len(answers), len(answers))
                ]
                assert rows(
                    "SELECT DISTINCT array_agg(version ORDER BY version), "
                    "array_agg(status ORDER BY version) FROM memory.version GROUP BY document_id"
                ) == [([1, 2], ["superseded", "active"])]
                # What the killed ones had leased comes free by time, which the test does not wait for.
                conn.execute("UPDATE memory.embed_queue SET not_before = now()")
                wait_until(lambda: rows("SELECT count(*) FROM memory.embed_queue") == [(0,)], seconds=90)
            found = first.search(TOKEN, "lantern 39 writer3")
            assert found["items"][0]["title"] == "Note 3.39"
            assert set(found.get("degraded", [])) <= {"rerank_unavailable"}
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=30)
