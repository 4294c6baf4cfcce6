"""export, and import of an export: what comes back, what they say of what doesn't, and what a kill leaves."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from corbits_memory.config import EngineConfig
from corbits_memory.server.startup import migrate
from tests.e2e.support import NO_MODEL, Run, add, corbits_memory, one_json, start
from tests.support.postgres import NewDatabase


@pytest.fixture
def elsewhere(new_database: NewDatabase) -> str:
    """The URL of another migrated database."""
    url = new_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    return url


def notes(tmp_path: Path, count: int) -> Path:
    file = tmp_path / "notes.jsonl"
    lines = (
        {"title": f"Note {n}", "text": f"lighthouse number{n} " * 20, "external_ref": f"n{n}"}
        for n in range(count)
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_an_export_comes_back_in_another_database(
    corbits: Run, new_database: NewDatabase, tmp_path: Path
) -> None:
    add(corbits, "The harbour is closed.", "--external-ref", "h")
    add(corbits, "The harbour is open.", "--external-ref", "h")
    add(corbits, "A lighthouse.", "--principal", "eve")
    file = tmp_path / "all.jsonl"
    code, out, errors = corbits("export", file)
    assert (code, out, errors) == (0, "", "2 documents\n")
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]
    url = new_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    for count in (2, 0):
        code, out, errors = corbits("import", file, "--database-url", url, "--json")
        assert code == 0, errors
        told = one_json(out)
        assert (told["documents"], told["skipped"]) == (count, 0)
    code, out, _ = corbits("search", "harbour", "--database-url", url, "--json")
    assert [item["snippet"] for item in one_json(out)["items"]] == ["The harbour is open."]


def test_a_persons_data_is_exported_alone(corbits: Run) -> None:
    add(corbits, "The harbour is closed.")
    add(corbits, "A lighthouse.", "--principal", "eve")
    code, out, _ = corbits("export", "--principal", "eve", "--owned")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["chunk"]["text"] for line in lines if "chunk" in line] == ["A lighthouse."]
    code, _, errors = corbits("export", "--owned")
    assert (code, "--principal" in errors) == (2, True)


@pytest.mark.parametrize("damage", [b'{"corbits-memory-export":2}\n{"docu', b'{"corbits-memory-export":7}\n'])
def test_a_damaged_export_is_refused_in_one_line(corbits: Run, tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(damage)
    code, out, errors = corbits("import", file)
    assert (code, out) == (1, "")
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) == 1


def test_two_thousand_documents_come_back_with_their_text(
    corbits: Run, elsewhere: str, tmp_path: Path
) -> None:
    assert corbits("import", notes(tmp_path, 2_000))[0] == 0
    file = tmp_path / "all.jsonl"
    assert corbits("export", file)[0] == 0
    code, out, errors = corbits("import", file, "--database-url", elsewhere, "--json")
    assert code == 0, errors
    told = one_json(out)
    assert (told["documents"], told["versions"], told["chunks"]) == (2_000, 2_000, 2_000)
    for n in range(0, 2_000, 97):
        _, out, _ = corbits("search", f"number{n}", "--database-url", elsewhere, "--json", "--limit", 1)
        assert [item["title"] for item in one_json(out)["items"]] == [f"Note {n}"]
    again = tmp_path / "again.jsonl"
    assert corbits("export", again, "--database-url", elsewhere)[0] == 0
    assert again.read_text("utf-8").splitlines()[1:] == file.read_text("utf-8").splitlines()[1:]


def test_killed_again_and_again_it_ends_with_the_same(corbits: Run, elsewhere: str, tmp_path: Path) -> None:
    assert corbits("import", notes(tmp_path, 3_000))[0] == 0
    file = tmp_path / "all.jsonl"
    assert corbits("export", file)[0] == 0
    seen = 0
    for least in (1, 800, 1_600):
        running = start("import", file, "--database-url", elsewhere, **NO_MODEL)
        for documents in counts(elsewhere):
            if documents >= max(least, seen + 1) or running.poll() is not None:
                break
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        seen = next(counts(elsewhere))
    assert seen > 0
    ended = corbits_memory("import", file, "--database-url", elsewhere, "--json", **NO_MODEL)
    assert ended.returncode == 0, ended.stderr
    again = tmp_path / "again.jsonl"
    assert corbits("export", again, "--database-url", elsewhere)[0] == 0
    assert again.read_text("utf-8").splitlines()[1:] == file.read_text("utf-8").splitlines()[1:]
    with psycopg.connect(elsewhere) as conn:
        row = conn.execute(
            "SELECT document_count, chunk_count, feed_seq, (SELECT count(*) FROM memory.search_row) FROM "
            "memory.tenant_state"
        ).fetchone()
    assert row == (3_000,) * 4


def counts(url: str) -> Iterator[int]:
    """How many documents there are, again and again."""
    with psycopg.connect(url, autocommit=True) as conn:
        while True:
            row = conn.execute("SELECT count(*) FROM memory.document").fetchone()
            yield 0 if row is None else row[0]
            time.sleep(0.01)


def test_what_was_erased_is_told_and_stays_away(corbits: Run, tmp_path: Path) -> None:
    made = add(corbits, "The harbour is closed.", "--external-ref", "h")
    add(corbits, "A lighthouse.", "--external-ref", "l")
    file = tmp_path / "all.jsonl"
    assert corbits("export", file)[0] == 0
    assert corbits("forget", made["documentId"])[0] == 0
    code, out, errors = corbits("import", file)
    assert (code, out) == (0, "0 documents, 0 versions, 0 vectors\n")
    assert "versions left out, since they were forgotten or purged here: 1" in errors.splitlines()
    assert one_json(corbits("import", file, "--json")[1])["erased"] == 1
    items = one_json(corbits("search", "harbour closed", "--json")[1])["items"]
    assert [item["snippet"] for item in items] == ["A lighthouse."]


def test_what_has_another_in_its_place_is_told_and_an_error(
    corbits: Run, elsewhere: str, tmp_path: Path
) -> None:
    add(corbits, "The harbour is closed.", "--external-ref", "h")
    file = tmp_path / "all.jsonl"
    assert corbits("export", file)[0] == 0
    assert corbits("import", file, "--database-url", elsewhere)[0] == 0
    for where, text in (((), "It is open."), (("--database-url", elsewhere), "It is gone.")):
        add(corbits, text, "--external-ref", "h", *where)
    newer = tmp_path / "newer.jsonl"
    assert corbits("export", newer)[0] == 0
    code, out, errors = corbits("import", newer, "--database-url", elsewhere)
    assert (code, out) == (1, "0 documents, 0 versions, 0 vectors\n")
    assert (
        "versions left out, since their documents have others in their place here: 1" in errors.splitlines()
    )


HEAD = b'{"corbits-memory-export":2,"tenant":"default"}\n'


@pytest.mark.parametrize(
    "damage",
    [
        b'{"docu',
        b"[]\n",
        b'"document"\n',
        b'{"document":{"id":"\xff\xfe"}}\n',
        b'{"document":' + b"[" * 100_000 + b"\n",
        b'{"document":{"id":"a","thread_seq":NaN}}\n',
        b'{"document":{"id":"a","thread_seq":' + b"9" * 5_000 + b"}}\n",
        b'{"document":{"id":"a","title":"\\ud800"}}\n',
        b'\n{"end":{}}\n',
        b'{"nonsense":{}}\n',
        b"",
    ],
)
def test_each_damage_is_told_in_a_line_with_its_number(corbits: Run, tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(HEAD + damage)
    code, out, errors = corbits("import", file)
    assert (code, out) == (1, "")
    first, *more = errors.splitlines()
    assert first.startswith("error: ")
    assert "line " in first
    assert all(line.startswith("  document.") for line in more)
    assert "Traceback" not in errors
    assert "not foreseen" not in errors


def test_an_export_is_known_by_its_first_line_however_it_is_spaced(corbits: Run, tmp_path: Path) -> None:
    file = tmp_path / "spaced.jsonl"
    file.write_text('{ "tenant": "default",  "corbits-memory-export": 9 }\n', encoding="utf-8")
    code, _, errors = corbits("import", file)
    assert (code, "format version 9" in errors) == (1, True)
