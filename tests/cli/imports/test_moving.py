"""Other people's exports on a real database: once, twice, and through a kill."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.imports import exports
from tests.cli.imports.exports import pack, write
from tests.e2e.support import NO_MODEL, Run, one_json, start

EXPORTS: dict[str, tuple[Any, int, str]] = {
    "mem0": (exports.MEM0, 2, "swims"),
    "zep": ([exports.ZEP_THREAD], 2, "ferry"),
    "langgraph": (exports.LANGGRAPH, 2, "early ferry"),
    "chatgpt": ([exports.chatgpt()], 3, "ferry leave"),
    "claude": ([exports.CLAUDE], 3, "berth cost"),
}


@pytest.mark.parametrize("source", EXPORTS)
def test_an_export_is_found_and_a_second_import_changes_nothing(
    corbits: Run, tmp_path: Path, source: str
) -> None:
    value, count, query = EXPORTS[source]
    path = write(tmp_path / "conversations.json", value)
    code, out, errors = corbits("import", "--from", source, path, "--json")
    assert code == 0, errors
    assert one_json(out)["created"] == count
    (item, *_) = one_json(corbits("search", query, "--json")[1])["items"]
    assert item["citation"]["adapter"] == source
    detail = one_json(corbits("show", item["documentId"], "--json")[1])
    assert "2025-07-01T17:00:00" in str(detail) or "2026-01-0" in str(detail)
    again = one_json(corbits("import", "--from", source, path, "--json")[1])
    assert (again["created"], again["updated"], again["unchanged"]) == (0, 0, count)


def test_bad_items_are_named_and_the_rest_is_kept(corbits: Run, tmp_path: Path) -> None:
    memories = [
        {"id": "a", "memory": "first"},
        {"id": "\x07", "memory": "odd"},
        3,
        {"id": "b", "memory": "last"},
    ]
    path = write(tmp_path / "m.json", memories)
    code, out, errors = corbits("import", "--from", "mem0", path, "--json")
    told = one_json(out)
    assert code == 1
    assert (told["created"], told["failed"]) == (2, 2)
    places = {failure["at"].rpartition("/")[2]: failure["problem"] for failure in told["failures"]}
    assert "control characters" in places["m.json[1]"]
    assert "no memory" in places["m.json[2]"]
    assert "m.json[1]" in errors


def test_what_is_passed_over_is_counted(corbits: Run, tmp_path: Path) -> None:
    path = pack(tmp_path / "e.zip", {"conversations.json": [exports.chatgpt()]})
    code, out, _ = corbits("import", "--from", "chatgpt", path)
    assert code == 0
    assert "3 created, 0 updated, 0 unchanged, 0 failed, 6 skipped (not shown there, or without text)" in out


def test_a_thread_keeps_its_order_and_its_people(corbits: Run, database: str, tmp_path: Path) -> None:
    corbits("import", "--from", "zep", write(tmp_path / "t.json", exports.ZEP_THREAD))
    with psycopg.connect(database) as conn:
        rows = conn.execute(
            "SELECT d.external_ref, v.author, v.thread FROM memory.version v JOIN memory.document d "
            "ON d.tenant_id = v.tenant_id AND d.id = v.document_id ORDER BY v.occurred_at"
        ).fetchall()
    assert rows == [("msg-1", "Ann", "thread-1"), ("msg-2", "assistant", "thread-1")]


def test_an_unknown_source_is_told(corbits: Run, tmp_path: Path) -> None:
    code, _, errors = corbits("import", "--from", "letta", write(tmp_path / "x.json", []))
    assert code == 2
    assert "mem0" in errors


def _count(database: str) -> int:
    with psycopg.connect(database) as conn:
        row = conn.execute("SELECT count(*) FROM memory.version").fetchone()
    assert row is not None
    return int(row[0])


def _wait_for_some(database: str, process: "subprocess.Popen[str]") -> int:
    for _ in range(600):
        count = _count(database)
        if count or process.poll() is not None:
            return count
        time.sleep(0.05)
    raise AssertionError("nothing was imported")


def test_an_import_that_was_killed_goes_on(corbits: Run, database: str, tmp_path: Path) -> None:
    memories = [{"id": f"m{n}", "memory": f"Memory number {n}. " + "words " * 50} for n in range(4_000)]
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"results": memories}), encoding="utf-8")
    words = ("import", "--from", "mem0", path, "--batch-size", 20, "--json")
    process = start(*words, DATABASE_URL=database, **NO_MODEL)
    try:
        before = _wait_for_some(database, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert 0 < before < len(memories)
    told = one_json(corbits(*words)[1])
    assert told["unchanged"] >= before
    assert told["created"] + told["unchanged"] == len(memories) == _count(database)
    assert told["updated"] == told["failed"] == 0
