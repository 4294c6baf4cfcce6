"""Files over HTTP: a form with the limits of every other body."""

import importlib.util
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from corbits_memory.client import MemoryClient
from corbits_memory.core.limits import BODY_BYTES, TITLE_CHARS
from corbits_memory.errors import (
    EncryptedFileError,
    FileTooLargeError,
    TextExtractorRequiredError,
    TooLargeError,
    UnsupportedFileError,
)
from corbits_memory.extract import Bounds, FileTextExtractor
from corbits_memory.http import form as form_module
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.testing import FakeDocumentStore
from tests.extract.files import pdf, word
from tests.http.conftest import client_of, identity
from tests.http.test_guard import error_of

BOUNDARY = "line"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
TEXT = ("notes.txt", b"Fridays are frozen.", "text/plain")


@pytest.fixture
async def memory(store: FakeDocumentStore) -> AsyncIterator[Memory]:
    async with Memory(store, text_extractor=FileTextExtractor(bounds=Bounds(pages=2))) as memory:
        yield memory


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[MemoryClient]:
    transport = httpx2.ASGITransport(app=memory_app(memory, identity=identity))
    async with MemoryClient("http://memory.test", tenant="acme", token="ann", transport=transport) as client:
        yield client


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"{named}\r\n\r\n'
    return head.encode() + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


async def post(http: httpx2.AsyncClient, *parts: bytes, **headers: str) -> httpx2.Response:
    return await http.post("/add/file", content=b"".join(parts) + END, headers={**FORM, **headers})


async def test_a_file_becomes_a_document(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    fields = {
        "kind": "rule",
        "author": "Ann",
        "external_ref": "rules-1",
        "occurred_at": "2026-01-02",
        "attributes": json.dumps({"berth": 7, "open": True}),
        "access_tags": json.dumps(["memory.space:port"]),
        "share": json.dumps({"tenant": True}),
        "unknown": "is ignored",
    }
    data = pdf("Fridays are frozen.", title="Harbour rules")
    answer = await http.post("/add/file", data=fields, files={"file": ("a.pdf", data, "application/pdf")})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "created"
    (kept,) = store.documents
    for told in ("Fridays are frozen.", "Harbour rules", "rules-1", "memory.space:port", "'berth': 7"):
        assert told in str(kept)


@pytest.mark.parametrize(
    ("filename", "told", "error"),
    [
        ("a.pdf", "encrypted_file", pdf("a", password="x")),
        ("a.pdf", "file_too_large", pdf("a", "b", "c")),
        ("a.pdf", "unreadable_file", b"words"),
        ("a.docx", "unreadable_file", pdf("a")),
        ("a.png", "unsupported_file", b"\x89PNG\r\n\x1a\n"),
        ("a.docx", "file_without_text", word()),
        ("a.exe", "unsupported_file", b"MZ\x00"),
    ],
)
async def test_each_bad_file_has_its_error(
    http: httpx2.AsyncClient, store: FakeDocumentStore, filename: str, told: str, error: bytes
) -> None:
    answer = await post(http, part("file", error, filename))
    assert error_of(answer)["code"] == told
    assert answer.status_code == (413 if told == "file_too_large" else 400)
    assert not store.documents


@pytest.mark.parametrize(("spare", "status"), [(1, 200), (0, 200), (-1, 413)])
async def test_a_form_has_at_most_ten_mebibytes(
    http: httpx2.AsyncClient, store: FakeDocumentStore, spare: int, status: int
) -> None:
    frame = len(part("file", b"", "a.txt") + END)
    answer = await post(http, part("file", b"x" * (BODY_BYTES - frame - spare), "a.txt"))
    assert answer.status_code == status
    assert len(store.documents) == (status == 200)


async def test_too_large_comes_before_anything_is_parsed(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/add/file", content=b"x" * (BODY_BYTES + 1), headers=FORM)
    assert error_of(answer)["code"] == "too_large"


async def test_who_may_comes_first(memory: Memory) -> None:
    app = memory_app(memory, identity=identity)
    for token, status in ((None, 401), ("reader", 403)):
        async with client_of(app, token=token) as http:
            assert (await http.post("/add/file", content=b"x" * (BODY_BYTES + 1))).status_code == status


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"content-type": "application/json"}, b'{"title":"a","text":"b"}'),
        ({"content-type": "application/x-www-form-urlencoded"}, b"title=a"),
        ({}, b""),
        ({"content-type": "multipart/form-data"}, END),
        (FORM, b"--other\r\n\r\n"),
        (FORM, part("file", b"a", "a.txt")[:-20]),
        (FORM, b"".join(part(f"p{n}", b"a") for n in range(65)) + END),
        ({"content-type": 'multipart/form-data; boundary="a\\"b"'}, END),
    ],
)
async def test_what_is_no_form_is_400(
    http: httpx2.AsyncClient, headers: dict[str, str], content: bytes
) -> None:
    answer = await http.post("/add/file", content=content, headers=headers)
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "invalid_input"


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ([part("kind", b"note")], "file"),
        ([part("file", b"no name")], "file"),
        ([part("file", b"", "a.txt")], "file.data"),
        ([part("file", b"a", "a.txt"), part("attributes", b"{")], "attributes"),
        ([part("file", b"a", "a.txt"), part("access_tags", b"memory.space:port")], "access_tags"),
        ([part("file", b"a", "a.txt"), part("access_tags", b'["*"]')], "access_tags[0]"),
        ([part("file", b"a", "a.txt"), part("title", b"x" * (TITLE_CHARS + 1))], "file.title"),
        ([part("file", b"a", "a.txt"), part("occurred_at", b"soon")], "occurred_at"),
    ],
)
async def test_a_bad_field_is_named(http: httpx2.AsyncClient, parts: list[bytes], field: str) -> None:
    answer = await post(http, *parts)
    assert answer.status_code == 400
    assert error_of(answer)["details"][0]["field"] == field


@pytest.mark.parametrize(
    "parts",
    [
        [part("file", b"a", "a.txt"), part("file", b"b", "b.txt")],
        [part("file", b"a", "a.txt"), part("kind", b"a"), part("kind", b"b")],
        [part("file", b"a", "a.txt"), part("kind", b"a", "b.txt")],
    ],
)
async def test_a_part_comes_once_and_as_what_it_is(
    http: httpx2.AsyncClient, store: FakeDocumentStore, parts: list[bytes]
) -> None:
    assert (await post(http, *parts)).status_code == 400
    assert not store.documents


async def test_without_an_extractor_it_is_said(store: FakeDocumentStore) -> None:
    async with Memory(store) as memory, client_of(memory_app(memory, identity=identity)) as http:
        answer = await post(http, part("file", b"a", "a.txt"))
    assert error_of(answer)["code"] == TextExtractorRequiredError.code
    assert not store.documents


async def test_without_what_parses_forms_it_is_said(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        form_module, "find_spec", lambda name: None if name == "python_multipart" else real(name)
    )
    answer = await post(http, part("file", b"a", "a.txt"))
    assert answer.status_code == 501
    assert "corbits-memory[extract]" in error_of(answer)["message"]


# --- the client ---


async def test_the_client_sends_files(client: MemoryClient, store: FakeDocumentStore) -> None:
    added = await client.add_file(
        word("No swimming.", title="Rules"),
        filename='Überfahrt "1".docx',
        kind="rule",
        attributes={"berth": 7},
        access_tags=["memory.space:port"],
    )
    assert added.status == "created"
    assert len(store.documents) == 1
    named = await client.add_file(b"words", filename="a.txt", title="Mine")
    titles = {event.document_id: event.title for event in (await client.list()).events}
    assert titles == {added.document_id: "Rules", named.document_id: "Mine"}


async def test_the_client_raises_what_the_file_is_refused_with(client: MemoryClient) -> None:
    with pytest.raises(EncryptedFileError):
        await client.add_file(pdf("a", password="x"), filename="a.pdf")
    with pytest.raises(FileTooLargeError):
        await client.add_file(pdf("a", "b", "c"), filename="a.pdf")
    with pytest.raises(UnsupportedFileError):
        await client.add_file(b"\x89PNG\r\n\x1a\n", filename="a", mime_type="image/png")
    with pytest.raises(TooLargeError):
        await client.add_file(b"x" * BODY_BYTES, filename="a.txt")


def test_both_clients_have_the_verb() -> None:
    from corbits_memory.client import SyncMemoryClient

    assert SyncMemoryClient.add_file.__doc__ == MemoryClient.add_file.__doc__


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "made-up", "latin-1"])
async def test_fields_are_utf_8_whatever_codec_is_named(http: httpx2.AsyncClient, charset: str) -> None:
    headers = {"content-type": f"{FORM['content-type']}; charset={charset}"}
    body = part("file", b"words", "a.txt") + part("title", "Grüße".encode()) + END
    assert (await http.post("/add/file", content=body, headers=headers)).status_code == 200
    found = (await http.get("/list")).json()["events"]
    assert [event["title"] for event in found] == ["Grüße"]
