"""What an import reads, in what order, under which names, in how much memory."""

import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corbits_memory.cli.backend import Json
from corbits_memory.cli.imports import items as items_module
from corbits_memory.cli.imports.files import ADAPTER, SourceFile, find_roots, iter_files
from corbits_memory.cli.imports.items import Found, Item, Refused, Skipped, read_items
from corbits_memory.cli.imports.load import BATCH_BYTES, Summary, load, wait_for_vectors
from corbits_memory.cli.imports.progress import BarWatcher, QuietWatcher
from corbits_memory.cli.output import print_json
from corbits_memory.cli.remote import RemoteBackend
from corbits_memory.cli.search import _about
from corbits_memory.client import MemoryClient
from corbits_memory.core.limits import EXTERNAL_REF_CHARS, ID_CHARS
from corbits_memory.errors import InvalidInputError
from corbits_memory.http import body as http_body
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.testing import FakeDocumentStore
from corbits_memory.validation import new_document
from corbits_memory.wire.requests import add_input


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text", encoding="utf-8")


def refs(*paths: Path, prefix: str = "") -> list[str]:
    return [file.ref for file in iter_files(find_roots(paths, prefix=prefix))]


def read(path: Path, **defaults: Any) -> list[Any]:
    return list(read_items(SourceFile(path, f"box/{path.name}", named=True), defaults))


class Store:
    """A backend that keeps count."""

    def __init__(self, pending: Sequence[int] = (0,), *, embeddings: bool = True) -> None:
        self.batches: list[int] = []
        self.largest = 0
        self.pending = list(pending)
        self.embeddings = embeddings

    async def add_batch(self, bodies: Sequence[Mapping[str, Any]]) -> list[Json]:
        self.batches.append(len(bodies))
        self.largest = max(self.largest, sum(len(body["text"]) for body in bodies))
        return [{"status": "created"} for _ in bodies]

    async def search(self, body: Mapping[str, Any]) -> Json:
        raise NotImplementedError

    async def list(self, *, limit: int, kinds: Sequence[str]) -> Json:
        raise NotImplementedError

    async def capabilities(self) -> Json:
        left = self.pending.pop(0) if len(self.pending) > 1 else self.pending[0]
        return {"embeddingsConfigured": self.embeddings, "pendingVectors": left}


def test_a_folder_is_read_in_order_without_hidden_files_and_links_out(tmp_path: Path) -> None:
    make(tmp_path, "box/b.md", "box/a.txt", "box/c/d.md", "box/.hidden/x.md", "box/.y.md", "other/z.md")
    (tmp_path / "box" / "link").symlink_to(tmp_path / "other")
    assert refs(tmp_path / "box") == ["box/a.txt", "box/b.md", "box/c/d.md"]


def test_a_file_has_the_same_name_by_itself_and_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "box/a.md")
    monkeypatch.chdir(tmp_path / "box")
    assert refs(Path("a.md")) == refs(tmp_path / "box") == refs(Path()) == ["box/a.md"]
    assert refs(Path("a.md"), prefix="mine/") == ["mine/box/a.md"]


def test_what_is_named_twice_is_read_once(tmp_path: Path) -> None:
    make(tmp_path, "box/a.md", "box/c/d.md")
    assert refs(tmp_path / "box" / "a.md", tmp_path / "box", tmp_path / "box" / "c") == [
        "box/a.md",
        "box/c/d.md",
    ]


def test_two_folders_of_one_name_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "one/box/a.md", "two/box/a.md")
    with pytest.raises(InvalidInputError, match="--ref-prefix"):
        find_roots([tmp_path / "one" / "box", tmp_path / "two" / "box" / "a.md"])


def test_a_very_long_name_stays_within_the_limit_and_distinct(tmp_path: Path) -> None:
    folder = tmp_path.joinpath("box", *["d" * 200] * 6)
    try:
        make(folder, "a.md", "b.md")
    except OSError:
        pytest.skip("this file system has no such long names")
    found = refs(tmp_path / "box")
    assert len(set(found)) == 2
    assert all(len(ref) + 17 <= EXTERNAL_REF_CHARS for ref in found)


@pytest.mark.parametrize("letter", ["山", "😀", "d"])
def test_a_made_up_name_fits_beside_any_tenant(tmp_path: Path, letter: str) -> None:
    folder = tmp_path.joinpath("box", *[letter * 60] * 14)
    try:
        make(folder, "a.jsonl", "b.jsonl")
    except OSError:
        pytest.skip("this file system has no such long names")
    found = list(iter_files(find_roots([tmp_path / "box"])))
    assert len({file.ref for file in found}) == 2
    for file in found:
        file.path.write_text('{"title": "t", "text": "x"}', encoding="utf-8")
        (line,) = read_items(file, {})
        assert isinstance(line, Item)
        kept = new_document(add_input(line.body), tenant_id="😀" * ID_CHARS, principal_id="p")
        assert kept.external_ref == line.body["external_ref"]
        assert kept.adapter == ADAPTER


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["x.md", "x.jsonl"])
async def test_a_pipe_is_never_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    make(tmp_path, "box/a.md")
    pipe = tmp_path / "box" / name
    os.mkfifo(pipe)
    found = [item for file in iter_files(find_roots([tmp_path / "box"])) for item in read_items(file, {})]
    summary = await load(Store(), found, batch_size=10, watcher=QuietWatcher())
    assert (summary.counts["created"], summary.counts["skipped"], summary.failed) == (1, 1, 0)
    assert f"{name}: skipped: is not a regular file" in capsys.readouterr().err
    (refused,) = [item for file in iter_files(find_roots([pipe])) for item in read_items(file, {})]
    assert isinstance(refused, Refused), "named itself, it is a failure"


async def test_a_link_out_of_the_folder_is_told_and_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "box/a.md", "box-too/secret.md", "box/deep/b.md")
    (tmp_path / "box" / "in.md").symlink_to(Path("deep", "b.md"))
    (tmp_path / "box" / "deep" / "out.md").symlink_to(tmp_path / "box-too" / "secret.md")
    (tmp_path / "box" / "up.md").symlink_to(Path("..", "box-too", "secret.md"))
    (tmp_path / "box" / "loop.md").symlink_to("loop.md")
    found = [item for file in iter_files(find_roots([tmp_path / "box"])) for item in read_items(file, {})]
    names = [item.body["external_ref"] for item in found if isinstance(item, Item)]
    assert names == ["box/a.md", "box/in.md", "box/deep/b.md"]
    summary = await load(Store(), found, batch_size=10, watcher=QuietWatcher())
    assert (summary.counts["skipped"], summary.failed) == (2, 1)
    told = capsys.readouterr().err
    assert told.count("skipped: is a link that leads out of the folder") == 2
    assert "loop.md: can't be read" in told


def test_a_link_that_is_named_itself_is_read(tmp_path: Path) -> None:
    make(tmp_path, "other/z.md")
    (tmp_path / "l.md").symlink_to(tmp_path / "other" / "z.md")
    (file,) = iter_files(find_roots([tmp_path / "l.md"]))
    assert isinstance(next(iter(read_items(file, {}))), Item)


def test_markdown_is_titled_by_its_heading_and_text_by_its_name(tmp_path: Path) -> None:
    note, plain = tmp_path / "n.md", tmp_path / "tide_table.txt"
    note.write_text("\ufeffIntro\n\n## The heading ##\n", encoding="utf-8")
    plain.write_text("# not a heading", encoding="utf-8")
    (first,), (second,) = read(note), read(plain)
    assert first.body["title"] == "The heading"
    assert first.body["external_ref"] == "box/n.md"
    assert not first.body["text"].startswith("\ufeff")
    assert second.body["title"] == "tide table"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.md", b"\xff\xfe", "UTF-8"),
        ("a.md", b" \n", "empty"),
        ("a.exe", b"MZ", "can't be imported"),
    ],
)
def test_a_named_file_that_is_no_text_is_refused(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (found,) = read(tmp_path / name)
    assert isinstance(found, Refused)
    assert problem in found.problem


def test_a_foreign_file_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    (found,) = read_items(SourceFile(tmp_path / "a.png", "box/a.png", named=False), {})
    assert isinstance(found, Skipped)


def test_a_file_that_has_gone_is_refused(tmp_path: Path) -> None:
    (found,) = read(tmp_path / "gone.md")
    assert isinstance(found, Refused)
    assert "can't be read" in found.problem


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"title": ', "not valid JSON (column"),
        (b'{"title": NaN}', "number"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "number"),
        (b'{"attributes": {"x": 1e400}}', "number"),
        (b'{"text": "b \\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"text"', "JSON object"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_the_next_is_read(
    tmp_path: Path, line: bytes, problem: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + line + b'\n{"title": "t", "text": "x"}\n')
    bad, good = read(path)
    assert isinstance(bad, Refused)
    assert bad.origin == f"{path}:2"
    assert problem in bad.problem
    assert isinstance(good, Item)
    assert good.origin == f"{path}:3"


def test_a_line_names_itself_or_is_named_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [{"title": "t", "text": "x", "external_ref": "own"}, {"title": "t", "text": "x"}]
    path.write_text("\ufeff" + "\n".join(map(json.dumps, lines)), encoding="utf-8")
    own, hashed = read(path)
    assert own.body["external_ref"] == "own"
    assert "adapter" not in own.body
    assert hashed.body["external_ref"].startswith("box/a.jsonl#")
    path.write_text("\n".join(map(json.dumps, reversed(lines))) + "\r\n", encoding="utf-8")
    assert read(path)[0].body["external_ref"] == hashed.body["external_ref"], "wherever the line stands"


def test_defaults_fill_in_and_null_counts_as_unsaid(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"kind": null, "thread": "own", "text": "x"}', encoding="utf-8")
    (found,) = read(path, kind="turn", thread="default")
    assert (found.body["kind"], found.body["thread"]) == ("turn", "own")


def test_a_line_above_the_limit_is_refused_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    good = b'{"title":"t","text":"x"}\n'
    monkeypatch.setattr(items_module, "PIECE_BYTES_MAX", len(good))
    path.write_bytes(good + b'{"title":"t","text":"xy"}\n' + good)
    first, refused, last = read(path)
    assert isinstance(first, Item)
    assert isinstance(refused, Refused)
    assert isinstance(last, Item)
    assert sum(found.size for found in (first, refused, last)) == path.stat().st_size


async def test_batches_end_at_their_count_or_their_size() -> None:
    store = Store()

    def item(size: int) -> Item:
        return Item("o", {"text": "x" * size}, size)

    sizes = [1, 1, 1, 1, BATCH_BYTES, BATCH_BYTES + 1, 1]
    summary = await load(store, map(item, sizes), batch_size=3, watcher=QuietWatcher())
    assert store.batches == [3, 1, 1, 1, 1]
    assert summary.counts["created"] == len(sizes)


@asynccontextmanager
async def remote(store: FakeDocumentStore) -> AsyncIterator[RemoteBackend]:
    """What ``--url`` talks to, with a server behind it."""
    async with Memory(store) as memory:
        app = memory_app(memory, identity=lambda request: Caller("t/1", "p"))
        transport = httpx2.ASGITransport(app=app)
        async with MemoryClient("http://memory.test", tenant="t/1", token="t", transport=transport) as client:
            yield RemoteBackend(client, tenant="t/1")


async def test_a_batch_that_a_server_finds_too_large_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeDocumentStore()
    monkeypatch.setattr(http_body, "BODY_BYTES", 500)
    sizes = [10, 10, 200, 200, 600, 10, 10]
    found = [Item(f"f:{n}", {"title": str(n), "text": "x" * size}, size) for n, size in enumerate(sizes)]
    async with remote(store) as server:
        summary = await load(server, found, batch_size=100, watcher=QuietWatcher())
        kept = [document.content.title for document in store.documents]
    assert kept == ["0", "1", "2", "3", "5", "6"]
    assert summary.counts["created"] == 6
    assert [failure["at"] for failure in summary.failures] == ["f:4"]
    assert "larger than" in summary.failures[0]["problem"]


async def test_an_odd_line_does_not_end_a_remote_import(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"title": "t", "text": "b \\ud800"}\n'
        b'{"title": "t", "text": "x", "attributes": {"x": 1e400}}\n'
        b'{"title": "good", "text": "x \\ud83d\\ude00"}\n'
    )
    store = FakeDocumentStore()
    async with remote(store) as server:
        summary = await load(server, read(path), batch_size=10, watcher=QuietWatcher())
        kept = [document.content.title for document in store.documents]
    assert kept == ["good"]
    assert [failure["at"] for failure in summary.failures] == [f"{path}:1", f"{path}:2"]


async def test_bytes_that_are_no_text_are_an_input_error_on_the_way_to_a_server() -> None:
    async with remote(FakeDocumentStore()) as server:
        with pytest.raises(InvalidInputError, match="UTF-8"):
            await server.search({"query": "a\udcff"})


def test_a_failure_in_a_file_whose_name_is_no_unicode_is_told_as_json(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print_json({"at": "a\udcff.md"})
    assert json.loads(capfd.readouterr().out) == {"at": "a\udcff.md"}


def test_a_hit_shows_its_own_evidence() -> None:
    item: Json = {
        "score": 2.0031,
        "kind": "note",
        "attribution": {"evidence": "weak", "author": "Tomas", "occurredAt": "2026-05-20T17:42:00.000Z"},
    }
    assert _about(item) == "score 2.003 · evidence weak · note · Tomas · 2026-05-20 17:42"
    assert _about({"score": 1, "kind": "page"}) == "score 1.000 · page", "a live source gives no attribution"


async def test_an_import_of_any_size_takes_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    line = json.dumps({"title": "t", "text": "word " * 400}) + "\n"
    with path.open("w", encoding="utf-8") as out:
        for _ in range(20_000):
            out.write(line)
    assert path.stat().st_size > 40_000_000
    store = Store()
    tracemalloc.start()
    try:
        found = read_items(SourceFile(path, "box/large.jsonl", named=True), {})
        await load(store, found, batch_size=250, watcher=QuietWatcher())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(store.batches) == 20_000
    assert peak < 3 * BATCH_BYTES


async def test_a_terminal_gets_bars_and_what_failed(capfd: pytest.CaptureFixture[str]) -> None:
    found: list[Found] = [Item("a:1", {"text": "x"}, 4), Refused("a:2", "is not \x1b valid", 6)]
    with BarWatcher(10) as watcher:
        summary = await load(Store(), found, batch_size=10, watcher=watcher)
        await wait_for_vectors(Store([2, 0]), summary, watcher=watcher, wait=True)
    errors = capfd.readouterr().err
    assert "a:2: is not valid" in errors
    assert "1 documents" in errors
    assert "2/2 vectors" in errors
    assert "100%" in errors


async def test_it_waits_until_no_vector_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corbits_memory.cli.imports.load.POLL_SECONDS", 0.0)
    seen: list[tuple[int, int]] = []

    class Watcher(QuietWatcher):
        def embedding(self, done: int, total: int) -> None:
            seen.append((done, total))

    summary = Summary()
    await wait_for_vectors(Store([5, 3, 6, 0]), summary, watcher=Watcher(), wait=True)
    assert summary.pending_vectors == 0
    assert seen == [(0, 5), (2, 5), (0, 6), (6, 6)]


async def test_it_gives_up_waiting_when_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corbits_memory.cli.imports.load.POLL_SECONDS", 0.01)
    monkeypatch.setattr("corbits_memory.cli.imports.load.STALLED_SECONDS", 0.05)
    summary = Summary()
    await wait_for_vectors(Store([5]), summary, watcher=QuietWatcher(), wait=True)
    assert summary.pending_vectors == 5


@pytest.mark.parametrize(("wait", "embeddings"), [(False, True), (True, False)])
async def test_it_does_not_wait_when_told_so_or_without_a_model(wait: bool, embeddings: bool) -> None:
    summary = Summary()
    store = Store([5], embeddings=embeddings)
    await wait_for_vectors(store, summary, watcher=QuietWatcher(), wait=wait)
    assert summary.to_json()["embeddingsConfigured"] is embeddings
    assert summary.pending_vectors == 5


def test_the_examples_are_what_their_readme_says() -> None:
    from tests.e2e.support import EXAMPLES

    turns = [item.body for item in read(EXAMPLES / "conversations.jsonl")]
    assert len(turns) == 60
    assert len({turn["external_ref"] for turn in turns}) == 60
    assert len({turn["thread"] for turn in turns}) == 4
    known = {turn["external_ref"] for turn in turns} | set(refs(EXAMPLES / "notes"))
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| Ask") :]
    named = [cell for row in table.splitlines() for cell in row.split("`")[1::2]]
    assert len(named) > 10
    assert set(named) <= known


def test_bars_of_an_export_of_unknown_size() -> None:
    with BarWatcher(None) as watcher:
        watcher.stored(10, 2)
        watcher.refused("a", "no")
        watcher.embedding(1, 2)
        watcher.embedding(2, 2)
