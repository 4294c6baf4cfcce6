"""Whatever a parser does, its process ends, and the host goes on."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from corbits_memory.errors import (
    ExtractNotInstalledError,
    FileTooLargeError,
    FileTooSlowError,
    UnreadableFileError,
)
from corbits_memory.extract import Bounds, FileTextExtractor
from corbits_memory.extract import extractor as extractor_module
from corbits_memory.extract.kinds import Kind
from corbits_memory.extract.process import Reading

SLEEPS = (
    "import time, pathlib, os, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(120)"
)


def parser(code: str, *arguments: object, bounds: Bounds | None = None) -> Reading:
    """A parser that does what no parser should."""
    reading = Reading(Kind.PDF, b"x" * 1_000_000, bounds or Bounds())
    reading._command = [sys.executable, "-c", code, *map(str, arguments)]
    return reading


async def until(holds: Callable[[], object]) -> None:
    for _ in range(500):
        if holds():
            return
        await anyio.sleep(0.02)
    raise AssertionError("it never came to that")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_parser_without_end_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(FileTooSlowError):
        parser(SLEEPS, tmp_path / "pid", bounds=Bounds(seconds=1.0)).run()
    assert time.monotonic() - began < 15
    assert not is_alive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("code", ["import os; os.abort()", "raise SystemExit(3)", "print('no JSON')", "pass"])
def test_a_parser_that_crashes_refuses_the_file(code: str) -> None:
    with pytest.raises(UnreadableFileError, match="crashed"):
        parser(code).run()


def test_a_parser_that_never_stops_answering_is_ended() -> None:
    endless = "import sys; sys.stdin.buffer.read()\nwhile True: sys.stdout.buffer.write(b'x' * 65536)"
    with pytest.raises(FileTooLargeError):
        parser(endless, bounds=Bounds(text_chars=1)).run()


def test_a_parser_knows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    tells = "import json, os; print(json.dumps({'text': ' '.join(os.environ), 'title': None}))"
    assert "DATABASE_URL" not in parser(tells).run().text.split()


async def test_a_caller_that_gives_up_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractor_module, "Reading", lambda *_, **__: parser(SLEEPS, tmp_path / "pid"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: FileTextExtractor().extract(b"%PDF-", mime_type=None, filename=None))
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            tasks.cancel_scope.cancel()
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not is_alive(pid))


async def test_one_that_waits_for_its_turn_and_gives_up_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = iter([parser(SLEEPS, tmp_path / "first"), parser(SLEEPS, tmp_path / "second")])
    monkeypatch.setattr(extractor_module, "Reading", lambda *_, **__: next(made))
    extractor = FileTextExtractor(processes=1)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(lambda: extractor.extract(b"%PDF-", mime_type=None, filename=None))
        await until((tmp_path / "first").exists)
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    await anyio.sleep(0.5)
    assert not (tmp_path / "second").exists()


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from corbits_memory.extract import child

    for module in ("pypdfium2", "mammoth", "html_to_markdown"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("pdf", "docx", "html"):
        monkeypatch.delitem(sys.modules, f"corbits_memory.extract.{name}", raising=False)
    for kind in (Kind.PDF, Kind.DOCX, Kind.HTML):
        told = child.answer(kind, b"x", Bounds(), None)
        assert told["error"] == ExtractNotInstalledError.code
        assert "corbits-memory[extract]" in told["message"]
