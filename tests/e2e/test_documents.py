"""show, history, export, and import of an export: what they print, and what comes back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.cli.run import run
from corbits_memory.config import EngineConfig
from corbits_memory.server.startup import migrate
from tests.e2e.support import Server, one_json
from tests.support.postgres import NewDatabase

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(new_database: NewDatabase) -> str:
    url = new_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    return url


@pytest.fixture
def corbits(database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setenv("EMBED_PROVIDER", "none")

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def add(corbits: Run, text: str, *words: object) -> Any:
    code, out, errors = corbits("add", text, "--title", "Harbour", "--json", *words)
    assert code == 0, errors
    return one_json(out)


def test_a_document_is_shown_with_its_text_and_its_history(corbits: Run) -> None:
    at = ("--external-ref", "h", "--occurred-at", "2026-01-01")
    add(corbits, "The harbour is closed.", *at)
    made = add(corbits, "The harbour is open.", *at)
    code, out, _ = corbits("show", made["documentId"])
    assert code == 0
    assert "The harbour is open." in out
    assert "version 2, active" in out
    code, out, _ = corbits("history", made["documentId"], "--json")
    versions = one_json(out)["versions"]
    assert [(v["version"], v["status"], v["changed"]) for v in versions] == [
        (2, "active", ["text"]),
        (1, "superseded", []),
    ]
    code, out, _ = corbits("show", versions[1]["versionId"])
    assert (code, "The harbour is closed." in out) == (0, True)


def test_what_is_not_there_or_not_ones_own_is_told_in_one_line(corbits: Run) -> None:
    made = add(corbits, "The harbour is closed.")
    for wanted in (made["documentId"], made["versionId"], "kdoc_none"):
        code, out, errors = corbits("show", wanted, "--principal", "eve")
        assert (code, out) == (1, "")
        assert errors.startswith("error: ")
        assert "not found" in errors


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


@pytest.mark.parametrize("damage", [b'{"corbits-memory-export":1}\n{"docu', b'{"corbits-memory-export":7}\n'])
def test_a_damaged_export_is_refused_in_one_line(corbits: Run, tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(damage)
    code, out, errors = corbits("import", file)
    assert (code, out) == (1, "")
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) == 1


def test_over_a_url_as_on_a_database(server: Server, token: str, corbits: Run) -> None:
    over = ("--url", server.url, "--token", token)
    made = add(corbits, "The harbour is closed.", *over)
    code, out, errors = corbits("show", made["documentId"], *over)
    assert (code, "The harbour is closed." in out) == (0, True), errors
    code, out, _ = corbits("history", made["documentId"], *over, "--json")
    assert (code, len(one_json(out)["versions"])) == (0, 1)
