"""JSON of any size and any damage, a record at a time."""

import io
import json
import tracemalloc
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.cli.imports.items import Refused
from corbits_memory.cli.imports.movers import records as records_module
from corbits_memory.cli.imports.movers.formats import FORMATS
from corbits_memory.cli.imports.movers.records import Part, Record, read_part, read_records
from tests.cli.imports.exports import pack, write

ARRAYS = frozenset({"results"})


def parsed(data: bytes, suffix: str = ".json") -> list[Record | Refused]:
    return list(read_part(Part("x", suffix, "x", lambda: io.BytesIO(data)), ARRAYS))


def values(data: bytes, suffix: str = ".json") -> list[Any]:
    found = parsed(data, suffix)
    assert not [each for each in found if isinstance(each, Refused)]
    return [each.value for each in found if isinstance(each, Record)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'[{"a": 1}, 2, "x", null, [3], 1.5, true]', [{"a": 1}, 2, "x", None, [3], 1.5, True]),
        (b"[]", []),
        (
            b'{"results": [{"a": {"results": [1]}}, {"b": 2}], "count": 2}',
            [{"a": {"results": [1]}}, {"b": 2}],
        ),
        (b'{"count": {"deep": [1]}, "results": [1]}', [1]),
        (b'{"results": [1], "more": 3, "results": [2]}', [1, 2]),
        (b'{"results": {"a": 1}}', [{"results": {"a": 1}}]),
        (b'{"a": 1, "b": [1, {"c": null}]}', [{"a": 1, "b": [1, {"c": None}]}]),
        (b'{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf [{"a": "\xc3\xbc"}]', [{"a": "ü"}]),
        (b"[123456789012345678901234567890, 1e400]", [123456789012345678901234567890, float("inf")]),
        (b"{}", [{}]),
    ],
)
def test_records_are_found(data: bytes, expected: list[Any]) -> None:
    assert values(data) == expected


def test_lines_are_records_and_a_bad_one_harms_no_other() -> None:
    found = parsed(b'{"a": 1}\n\nno\n[1]\n{"a": NaN}\n{"a": 2}', ".jsonl")
    assert [each.value for each in found if isinstance(each, Record)] == [{"a": 1}, {"a": 2}]
    assert [each.origin for each in found if isinstance(each, Refused)] == ["x:3", "x:4", "x:5"]


@pytest.mark.parametrize(
    ("data", "before"),
    [
        (b'[{"a": 1}, {"a": ', 1),
        (b'[{"a": 1}, {"a": NaN}, {"a": 2}]', 1),
        (b'[{"a": 1}] and more', 1),
        (b'[{"a": 1}, {"a": "\xff"}]', 1),
        (b"", 0),
        (b"no", 0),
        (b'{"results": [1, 2', 1),
        (b'{"results": [1], ', 1),
    ],
)
def test_what_stands_before_the_damage_is_read(data: bytes, before: int) -> None:
    found = parsed(data)
    assert sum(isinstance(each, Record) for each in found) >= before
    (problem,) = [each for each in found if isinstance(each, Refused)]
    assert "not valid JSON" in problem.problem


def test_a_scalar_is_no_export() -> None:
    assert [each.problem for each in parsed(b"3") if isinstance(each, Refused)] == ["must be JSON objects"]


@pytest.mark.parametrize(("size", "fits"), [(100_000, True), (2_000_000, False)])
def test_a_record_too_large_is_passed_over(monkeypatch: pytest.MonkeyPatch, size: int, fits: bool) -> None:
    monkeypatch.setattr(records_module, "PIECE_BYTES_MAX", 1_000_000)
    # Texts come whole from the parser: a record is measured between them.
    large = json.dumps([{"a": ["x" * 1_000] * (size // 1_000)}, {"a": 2}]).encode()
    first, second = parsed(large)
    assert isinstance(first, Record if fits else Refused)
    assert isinstance(second, Record)
    assert second.value == {"a": 2}
    assert second.origin == "x[1]"


def test_an_object_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "PIECE_BYTES_MAX", 1_000_000)
    fields = {f"field {n}": "x" * 1_000 for n in range(2_000)}
    (found,) = parsed(json.dumps(fields).encode())
    assert isinstance(found, Refused)
    assert "larger" in found.problem


class Endless(io.RawIOBase):
    """An export of so many bytes that nobody holds."""

    def __init__(self, size: int) -> None:
        self._record = json.dumps({"id": "a", "memory": "words " * 200}).encode() + b","
        self._left = size
        self._pieces = self._made()
        self._rest = b"["

    def _made(self) -> Iterator[bytes]:
        while self._left > 0:
            self._left -= len(self._record)
            yield self._record
        yield b"{}]"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self._rest) < len(buffer):
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def test_memory_does_not_grow_with_the_export() -> None:
    peaks = []
    for size in (1_000_000, 40_000_000):
        tracemalloc.start()
        part = Part("x", ".json", "x", partial(io.BufferedReader, Endless(size)))
        count = sum(1 for _ in read_part(part, ARRAYS))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count > size // 2_000
    assert peaks[1] < peaks[0] + 1_000_000


# --- where it lies ---


def found_in(path: Path, source: str = "claude") -> list[Record | Refused]:
    kind = FORMATS[source]
    return list(read_records(path, files=kind.files, arrays=kind.arrays))


def test_a_zip_file_is_read_where_it_lies(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.zip", {"data/conversations.json": [1, 2], "users.json": [3]})
    found = found_in(path)
    assert [each.value for each in found if isinstance(each, Record)] == [1, 2]
    assert found[0].origin == f"{path}:data/conversations.json[0]"


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, value in (("b/2.json", [2]), ("a.jsonl", {"n": 1}), (".x.json", [3]), ("b/n.txt", [4])):
        write(tmp_path / name, value)
    found = found_in(tmp_path, "mem0")
    assert [each.value for each in found if isinstance(each, Record)] == [{"n": 1}, 2]


@pytest.mark.parametrize("name", ["empty", "x.zip"])
def test_where_nothing_is_it_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "empty":
        path.mkdir()
    else:
        pack(path, {"users.json": []})
    (only,) = found_in(path)
    assert isinstance(only, Refused)
    assert "holds no file" in only.problem


def test_a_damaged_zip_file_is_told_after_what_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(
            "conversations.json", json.dumps([{"n": n, "text": "x" * 1_000} for n in range(500)])
        )
    data = bytearray(path.read_bytes())
    data[-2_000] ^= 0x20
    path.write_bytes(data)
    found = found_in(path)
    assert sum(isinstance(each, Record) for each in found) > 300
    (problem,) = [each for each in found if isinstance(each, Refused)]
    assert "damaged" in problem.problem or "JSON" in problem.problem


def test_an_encrypted_zip_file_is_told(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.zip", {"conversations.json": [1]})
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    path.write_bytes(data)
    (only,) = found_in(path)
    assert isinstance(only, Refused)
    assert "encrypted" in only.problem


def test_a_file_that_has_gone_is_told(tmp_path: Path) -> None:
    (only,) = found_in(tmp_path / "gone.json")
    assert isinstance(only, Refused)
    assert "can't be read" in only.problem
