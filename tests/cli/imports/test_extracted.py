"""PDF, DOCX and HTML on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corbits_memory.cli.imports.extracted import AT_ONCE, extract_all
from corbits_memory.cli.imports.items import Found, Item, Refused, Unread
from tests.e2e.support import Run, one_json
from tests.extract.files import pdf, word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    box = tmp_path / "box"
    (box / "inner").mkdir(parents=True)
    (box / "a.pdf").write_bytes(pdf("The ferry leaves at noon.", title="Timetable"))
    (box / "b.docx").write_bytes(word("No swimming.", title="Rules"))
    (box / "c.md").write_text("# Notes\n\nFridays are frozen.", encoding="utf-8")
    (box / "inner" / "d.html").write_text("<title>Prices</title><p>A berth costs seven.", encoding="utf-8")
    (box / "e.pdf").write_bytes(pdf("secret", password="x"))
    (box / "f.docx").write_bytes(b"PK\x03\x04 broken")
    return box


def test_a_folder_is_imported_and_what_is_broken_in_it_is_named(corbits: Run, folder: Path) -> None:
    code, out, errors = corbits("import", folder, "--json", "--kind", "paper")
    told = one_json(out)
    assert code == 1
    assert {name: told[name] for name in ("created", "unchanged", "failed", "skipped")} == {
        "created": 4,
        "unchanged": 0,
        "failed": 2,
        "skipped": 0,
    }
    problems = {Path(failure["at"]).name: failure["problem"] for failure in told["failures"]}
    assert "encrypted" in problems["e.pdf"]
    assert "broken" in problems["f.docx"]
    assert "e.pdf" in errors
    for query, title in (("ferry", "Timetable"), ("swimming", "Rules"), ("berth", "Prices")):
        (item, *_) = one_json(corbits("search", query, "--json")[1])["items"]
        assert (item["title"], item["kind"]) == (title, "paper")
        assert item["citation"]["adapter"] == "file"
    code, out, _ = corbits("import", folder, "--json", "--kind", "paper")
    assert one_json(out)["unchanged"] == 4


def test_a_changed_file_is_a_new_version(corbits: Run, folder: Path) -> None:
    corbits("import", folder / "a.pdf", "--json")
    (folder / "a.pdf").write_bytes(pdf("The ferry leaves at one.", title="Timetable"))
    assert one_json(corbits("import", folder / "a.pdf", "--json")[1])["updated"] == 1


def test_one_file_is_added(corbits: Run, folder: Path) -> None:
    code, out, errors = corbits("add", "--file", folder / "a.pdf", "--kind", "paper", "--json")
    assert code == 0, errors
    assert one_json(out)["status"] == "created"
    (item,) = one_json(corbits("search", "ferry", "--json")[1])["items"]
    assert (item["title"], item["kind"]) == ("Timetable", "paper")
    code, out, _ = corbits("add", "--file", folder / "a.pdf", "--title", "Mine", "--json")
    assert "Mine" in corbits("list")[1]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--file", "{box}/e.pdf"], 1, "encrypted"),
        (["--file", "{box}/none.pdf"], 2, "does not exist"),
        (["--file", "{box}"], 2, "is a directory"),
        (["text", "--file", "{box}/a.pdf"], 2, "either a text or --file"),
    ],
)
def test_a_file_that_can_not_be_added_is_told(
    corbits: Run, folder: Path, words: list[str], code: int, told: str
) -> None:
    found, _, errors = corbits("add", *(word_.format(box=folder) for word_ in words))
    assert found == code
    assert told in errors


async def test_files_are_read_at_once_and_stay_in_order(tmp_path: Path) -> None:
    def found() -> Iterator[Found]:
        for number in range(AT_ONCE * 2 + 1):
            path = tmp_path / f"{number}.html"
            path.write_text(f"<title>{number}</title><p>words", encoding="utf-8")
            yield Unread(path, {"external_ref": str(number)}, path.stat().st_size)
        yield Refused("between", "no")
        yield Unread(tmp_path / "gone.pdf", {}, 1)

    read = [each async for each in extract_all(found())]
    items = [each for each in read if isinstance(each, Item)]
    assert [item.body["title"] for item in items] == [str(number) for number in range(AT_ONCE * 2 + 1)]
    assert [item.body["external_ref"] for item in items] == [item.body["title"] for item in items]
    refused = [each for each in read if isinstance(each, Refused)]
    assert read[-2:] == refused
    assert [each.origin for each in refused] == ["between", str(tmp_path / "gone.pdf")]
    assert "can't be read" in refused[1].problem


async def test_a_batch_is_measured_by_what_was_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(word("words " * 200_000))
    path = tmp_path / "a.docx"
    (item,) = [each async for each in extract_all([Unread(path, {}, path.stat().st_size)])]
    assert isinstance(item, Item)
    assert item.size == len(item.body["text"]) > path.stat().st_size
