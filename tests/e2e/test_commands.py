"""Commands on a database of their own: what they print, and how they end."""

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.cli.run import run
from tests.e2e.support import one_json
from tests.support.postgres import NewDatabase

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def module_url(new_module_database: NewDatabase) -> str:
    return new_module_database()


@pytest.fixture
def corbits(module_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``corbits("list", "--json")`` in this process, on the module's database: exit code, output, errors."""
    monkeypatch.setenv("DATABASE_URL", module_url)
    monkeypatch.setenv("EMBED_PROVIDER", "none")

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def migrated(corbits: Run) -> Run:
    assert corbits("db", "migrate")[0] == 0
    return corbits


def test_before_migrating_every_command_says_what_to_run(corbits: Run, new_database: NewDatabase) -> None:
    url = new_database()
    for words in (("list",), ("add", "x"), ("search", "x"), ("token", "list"), ("db", "verify")):
        code, out, errors = corbits(*words, "--database-url", url)
        assert code == 1, words
        assert "corbits-memory db migrate" in out + errors, words
    code, out, _ = corbits("doctor", "--database-url", url, "--json")
    assert code == 1
    assert one_json(out)["checks"][-1]["state"] == "fail"
    assert "corbits-memory db migrate" in out


def test_migrating_twice_does_nothing_the_second_time(corbits: Run, new_database: NewDatabase) -> None:
    url = new_database()
    code, out, _ = corbits("db", "migrate", "--database-url", url, "--json")
    assert code == 0
    assert "memory_host/0001_tokens.sql" in one_json(out)["applied"]
    assert corbits("db", "migrate", "--database-url", url)[:2] == (0, "nothing to do\n")
    assert corbits("db", "verify", "--database-url", url)[:2] == (0, "ok\n")
    status = one_json(corbits("db", "status", "--database-url", url, "--json")[1])
    assert status["embedded"] is False
    assert status["rowLevelSecurity"] is True
    assert status["migrations"]["memory"]["pending"] == []


def test_an_edited_ledger_is_found_by_verify(corbits: Run, new_database: NewDatabase) -> None:
    import psycopg

    url = new_database()
    corbits("db", "migrate", "--database-url", url)
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE memory_host._migrations SET checksum = 'other'")
        conn.execute("INSERT INTO memory._migrations (name, checksum) VALUES ('9999_future.sql', 'x')")
    code, out, _ = corbits("db", "verify", "--database-url", url, "--json")
    assert code == 1
    problems = "\n".join(one_json(out)["problems"])
    assert "0001_tokens.sql was edited" in problems
    assert "9999_future.sql is unknown" in problems


def test_the_language_of_the_index_can_be_changed(
    corbits: Run, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    corbits("db", "migrate", "--database-url", url)
    monkeypatch.setenv("FTS_LANGUAGE", "german")
    code, out, _ = corbits("db", "verify", "--database-url", url)
    assert code == 1
    assert "db rebuild-fts german" in out
    assert corbits("db", "rebuild-fts", "german", "--database-url", url)[0] == 0
    assert corbits("db", "verify", "--database-url", url)[0] == 0
    assert corbits("db", "rebuild-fts", "klingon", "--database-url", url)[0] == 1


def test_add_takes_every_field_and_search_finds_it(migrated: Run) -> None:
    words = [
        "add", "The kingfisher nests below the bridge.", "--title", "Kingfisher", "--kind", "sighting",
        "--external-ref", "k-1", "--author", "Mara", "--thread", "birds", "--occurred-at", "2026-04-01",
        "--attribute", "count=2", "--attribute", "place=bridge", "--retention-class", "durable",
        "--temporal-class", "event", "--share-tenant", "--json",
    ]  # fmt: skip
    code, out, _ = migrated(*words)
    assert code == 0
    assert one_json(out)["status"] == "created"
    assert one_json(migrated(*words)[1])["status"] == "unchanged"
    found = one_json(migrated("search", "kingfisher", "--kind", "sighting", "--explain", "--json")[1])
    (item,) = found["items"]
    assert item["externalRef"] == "k-1"
    assert item["attribution"]["author"] == "Mara"
    assert item["explain"]
    assert one_json(migrated("search", "kingfisher", "--kind", "other", "--json")[1])["items"] == []


def test_search_shows_page_after_page(migrated: Run) -> None:
    for n in range(3):
        assert migrated("add", f"The bittern number{n} booms.", "--title", f"Bittern {n}")[0] == 0
    first = one_json(migrated("search", "bittern", "--limit", 2, "--json")[1])
    cursor = first["nextCursor"]
    _, _, err = migrated("search", "bittern", "--limit", 2)
    assert "--cursor" in err
    # A machine may wrap what it shows; the cursor must not break.
    assert cursor in err.split()
    last = one_json(migrated("search", "bittern", "--limit", 2, "--cursor", cursor, "--json")[1])
    assert last["nextCursor"] is None
    assert {item["title"] for item in first["items"] + last["items"]} == {f"Bittern {n}" for n in range(3)}
    assert "--cursor" not in migrated("search", "bittern", "--cursor", cursor)[2]
    code, _, err = migrated("search", "heron", "--cursor", cursor)
    assert code != 0
    assert "cursor" in err


def test_search_shows_what_is_evidence_enough(migrated: Run) -> None:
    migrated("add", "The avocet wades in the shallow lagoon.", "--title", "Avocet")
    found = one_json(migrated("search", "avocet lagoon", "--min-evidence", "strong", "--json")[1])
    assert all(item["attribution"]["evidence"] == "strong" for item in found["items"])
    nothing = one_json(
        migrated("search", "a lagoon of lava on mars", "--min-evidence", "strong", "--json")[1]
    )
    assert (nothing["items"], nothing["evidence"]) == ([], "none")
    code, _, err = migrated("search", "avocet", "--min-evidence", "none")
    assert code != 0
    assert "strong, weak" in err


def test_add_reads_standard_input_and_takes_its_first_line_as_title(
    migrated: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# Ospreys\n\nThey eat fish.\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    assert migrated("add")[0] == 0
    listed = one_json(migrated("list", "--limit", 1, "--json")[1])
    assert listed["events"][0]["title"] == "Ospreys"


def test_stored_text_can_not_drive_the_terminal(migrated: Run) -> None:
    migrated("add", "A woodcock \x1b[2J \x1b]0;owned\x07 flies.", "--title", "Wood\x1bcock")
    for words in (("search", "woodcock"), ("list",)):
        out = migrated(*words)[1]
        assert "cock" in out
        assert "\x1b" not in out
        assert "\x07" not in out


def test_nothing_saved_and_nothing_relevant_are_told_apart(migrated: Run) -> None:
    assert "holds nothing that you may see yet" in migrated("search", "x", "--tenant", "empty")[1]
    migrated("add", "Grebes dive.", "--tenant", "birds")
    out = migrated("search", "quixotic", "--tenant", "birds")[1]
    assert "evidence: none" in out
    assert "Nothing that is held here answers this" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("search", "x", "--limit", 51), "limit"),
        (("search",), "query"),
        (("list", "--limit", 101), "limit"),
        (("add", "text", "--kind", " "), "kind"),
        (("add", "text", "--provenance", "gossip"), "provenance"),
        (("token", "create", "--capabilities", "fly"), "capabilities"),
        (("token", "revoke", "tok_nothing"), "token list"),
        (("embed", "backfill"), "EMBED_BASE_URL"),
    ],
)
def test_what_is_refused_is_told_in_one_line_with_exit_code_1(
    migrated: Run, words: tuple[object, ...], told: str
) -> None:
    code, out, errors = migrated(*words)
    assert (code, out) == (1, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert told in errors


@pytest.mark.parametrize(
    "words",
    [
        ("fly",),
        ("search", "x", "--nonsense"),
        ("import",),
        ("import", "/no/such/file"),
        ("list", "--data-dir", "d"),
        ("list", "--url", "http://127.0.0.1:1", "--database-url", "postgresql://x/y"),
        ("add", "x", "--text", "y"),
        ("add", "x", "--attribute", "no-equals-sign"),
        ("token", "create", "--expires", "soon"),
    ],
)
def test_wrong_use_is_exit_code_2(migrated: Run, words: tuple[str, ...]) -> None:
    code, out, errors = migrated(*words)
    assert (code, out) == (2, "")
    assert errors


def test_a_database_that_is_away_is_told_without_its_password(migrated: Run) -> None:
    code, _, errors = migrated("list", "--database-url", "postgresql://app:s3cret@127.0.0.1:1/x")
    assert code == 1
    assert "can't be reached" in errors
    assert "s3cret" not in errors
    assert "Traceback" not in errors


def test_a_server_that_is_away_is_told_at_once(migrated: Run) -> None:
    code, _, errors = migrated("list", "--url", "http://127.0.0.1:1", "--token", "t")
    assert code == 1
    assert "is `corbits-memory serve` running there?" in errors


def test_a_server_without_a_token_is_told(migrated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_URL", "http://127.0.0.1:1")
    code, _, errors = migrated("list")
    assert code == 1
    assert "CORBITS_MEMORY_TOKEN" in errors


def test_debug_shows_where_an_error_comes_from(migrated: Run) -> None:
    from corbits_memory.errors import MemoryError

    with pytest.raises(MemoryError):
        migrated("list", "--limit", 101, "--debug")


def test_tokens_are_made_listed_and_revoked(migrated: Run) -> None:
    words = ("token", "create", "--tenant", "acme", "--principal", "ann", "--capabilities", "add,search")
    made = one_json(migrated(*words, "--expires", "30d", "--label", "laptop", "--json")[1])
    assert made["token"].startswith("cmt_")
    assert made["capabilities"] == ["memory:add", "memory:search"]
    ends = datetime.fromisoformat(made["expiresAt"])
    assert timedelta(days=29) < ends - datetime.now(UTC) <= timedelta(days=30)
    code, out, _ = migrated("token", "list", "--tenant", "acme")
    assert code == 0
    assert made["id"] in out
    assert made["token"] not in out
    assert migrated("token", "revoke", made["id"])[0] == 0
    (listed,) = one_json(migrated("token", "list", "--tenant", "acme", "--json")[1])["tokens"]
    assert listed["state"] == "revoked"


def test_the_secret_is_alone_on_standard_output(migrated: Run) -> None:
    _, out, errors = migrated("token", "create")
    assert out.strip().startswith("cmt_")
    assert len(out.split()) == 1
    assert "shown only now" in errors


def test_doctor_names_every_check(migrated: Run) -> None:
    code, out, _ = migrated("doctor", "--json")
    assert code == 0
    report = one_json(out)
    states = {check["name"]: check["state"] for check in report["checks"]}
    for name in (
        "configuration",
        "database",
        "postgres",
        "pgvector",
        "migrations",
        "language",
        "second lock",
        "search",
    ):
        assert states[name] == "ok", name
    assert states["embedding"] == "warn"
    assert report["ok"] is True


def test_doctor_tells_every_mistake_in_the_configuration(
    migrated: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_PROVIDER", "sometimes")
    monkeypatch.setenv("DB_POOL_MAX", "many")
    code, out, _ = migrated("doctor")
    assert code == 1
    assert "EMBED_PROVIDER" in out
    assert "DB_POOL_MAX" in out


def test_an_import_of_a_folder_takes_text_and_names_what_it_can_not(migrated: Run, tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# Avocets\n\nThey wade.", encoding="utf-8")
    (folder / "deep" / "b.txt").write_text("Bitterns boom.", encoding="utf-8")
    (folder / "report.pdf").write_bytes(b"%PDF-1.7")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    code, out, errors = migrated("import", folder, "--kind", "shelf", "--json")
    assert code == 1
    summary = one_json(out)
    assert (summary["created"], summary["failed"], summary["skipped"]) == (2, 1, 1)
    assert "broken" in summary["failures"][0]["problem"]
    assert "report.pdf" in errors
    found: Any = one_json(migrated("search", "avocets", "--kind", "shelf", "--json")[1])
    assert found["items"][0]["externalRef"] == "shelf/a.md"
    assert found["items"][0]["title"] == "Avocets"


def test_a_changed_file_is_a_new_version(migrated: Run, tmp_path: Path) -> None:
    path = tmp_path / "pond.md"
    path.write_text("Five years.", encoding="utf-8")
    assert one_json(migrated("import", path, "--json")[1])["created"] == 1
    path.write_text("Six years.", encoding="utf-8")
    assert one_json(migrated("import", path, "--json")[1])["updated"] == 1


def test_thread_and_author_fill_in_what_lines_do_not_say(migrated: Run, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    lines = [{"title": "T", "text": "Dunlins run.", "author": "Ida"}, {"title": "T", "text": "Knots turn."}]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert migrated("import", path, "--thread", "shore", "--author", "Ole")[0] == 0
    for word, author in (("dunlins", "Ida"), ("knots", "Ole")):
        (item, *_) = one_json(migrated("search", word, "--json")[1])["items"]
        assert (item["attribution"]["author"], item["attribution"]["thread"]) == (author, "shore")


# --- forgetting ---


def add_one(corbits: Run, text: str, *words: object) -> dict[str, Any]:
    code, out, errors = corbits("add", text, "--json", *words)
    assert code == 0, errors
    told: dict[str, Any] = one_json(out)
    return told


def test_a_persons_documents_are_counted_before_they_are_purged(migrated: Run) -> None:
    for number in range(3):
        assert migrated("add", f"note {number}", "--title", f"n{number}", "--principal", "pat")[0] == 0
    code, out, errors = migrated("purge", "--principal", "pat")
    assert (code, out) == (0, "would purge 3 documents of pat, 3 versions\n")
    assert "--yes" in errors
    assert migrated("purge", "--principal", "pat", "--yes")[:2] == (
        0,
        "purged 3 documents of pat, 3 versions\n",
    )
    code, out, _ = migrated("purge", "--principal", "pat", "--json")
    assert json.loads(out) == {"principal": "pat", "documents": 0, "versions": 0, "held": 0, "dryRun": True}
    assert migrated("purge")[0] == 2


def test_a_document_is_forgotten_and_purged(migrated: Run) -> None:
    document = add_one(migrated, "The wombat sleeps at noon.")["documentId"]
    code, out, _ = migrated("forget", document)
    assert (code, out) == (0, f"forgot 1 version of {document}\n")
    assert one_json(migrated("search", "wombat", "--json")[1])["items"] == []
    assert one_json(migrated("forget", document, "--json")[1]) == {
        "documentId": document,
        "versions": 0,
        "derived": [],
    }
    assert migrated("purge", document)[:2] == (0, f"purged {document}\n")
    code, out, errors = migrated("purge", document)
    assert (code, out, errors) == (1, "", "error: document not found\n")


def test_somebody_elses_document_is_unknown(migrated: Run) -> None:
    document = add_one(migrated, "The owner's own.")["documentId"]
    for verb in ("forget", "purge"):
        assert migrated(verb, document, "--principal", "bob")[0] == 1
    assert migrated("purge", document)[0] == 0


def test_a_version_is_deprecated_by_an_operator_whoever_owns_it(migrated: Run) -> None:
    mine = ("--principal", "ida")
    made = add_one(migrated, "The heron stands at the weir.", *mine)
    version, document = made["versionId"], made["documentId"]
    code, out, errors = migrated("deprecate", version, "--reason", "incorrect", "--actor", "sara")
    assert (code, out, errors) == (0, f"deprecated {version}, a version of {document}\n", "")
    assert one_json(migrated("search", "heron", "--json", *mine)[1])["items"] == []
    (item,) = one_json(migrated("search", "heron", "--include-deprecated", "--json", *mine)[1])["items"]
    assert (item["documentId"], item["attribution"]["status"]) == (document, "deprecated")
    (told,) = one_json(migrated("history", document, "--json", *mine)[1])["versions"]
    assert (told["versionId"], told["deprecatedReason"]) == (version, "incorrect")
    code, out, errors = migrated("deprecate", version)
    assert (code, out) == (1, "")
    assert "is deprecated; only an active or superseded one can be" in errors

    again = add_one(migrated, "The heron is back.", *mine)["versionId"]
    assert one_json(migrated("deprecate", again, "--json")[1])["deprecatedReason"] == "deprecated"


def test_a_version_that_is_not_there_can_not_be_deprecated(migrated: Run) -> None:
    made = add_one(migrated, "The coot dives.")
    for unknown in (("kver_unknown",), (made["documentId"],), (made["versionId"], "--tenant", "other")):
        assert migrated("deprecate", *unknown) == (1, "", "error: version not found\n")
    for wrong in (["--reason", "I do not like it"], ["--url", "x"]):
        code, out, errors = migrated("deprecate", made["versionId"], *wrong)
        assert (code, out) == (2, ""), wrong
        assert errors
    assert len(one_json(migrated("search", "coot", "--json")[1])["items"]) == 1


def test_a_sweep_says_how_much_had_expired(migrated: Run, tmp_path: Path) -> None:
    assert one_json(migrated("sweep", "--json", "--tenant", "empty")[1]) == {"versionsDeprecated": 0}
    path = tmp_path / "notices.jsonl"
    notices = [
        {
            "title": "T",
            "text": f"Notice {day}.",
            "retention_class": "ephemeral",
            "valid_until": f"2031-05-0{day}",
        }
        for day in (1, 2, 3)
    ]
    path.write_text("\n".join(map(json.dumps, notices)), encoding="utf-8")
    swept = ("sweep", "--tenant", "swept", "--now", "2031-05-02T12:00:00Z")
    assert migrated("import", path, "--tenant", "swept")[0] == 0
    assert migrated("sweep", "--tenant", "swept")[:2] == (0, "0 versions had expired\n")
    assert migrated(*swept)[:2] == (0, "2 versions had expired\n")
    assert one_json(migrated(*swept, "--json")[1]) == {"versionsDeprecated": 0}
    found = one_json(migrated("search", "notice", "--tenant", "swept", "--json")[1])["items"]
    assert [item["snippet"] for item in found] == ["Notice 3."]
    code, _, errors = migrated("sweep", "--now", "tomorrow")
    assert code == 1
    assert "now must be an ISO 8601 date" in errors


def test_a_scrub_rewrites_the_tables(migrated: Run) -> None:
    code, out, errors = migrated("db", "scrub", "--json")
    assert (code, errors) == (0, "")
    told = one_json(out)
    assert told["tables"] > 20
    assert told["left"] == []
