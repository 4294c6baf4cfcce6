"""show and history: what they print."""

from tests.e2e.support import Run, Server, add, one_json


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


def test_over_a_url_as_on_a_database(server: Server, token: str, corbits: Run) -> None:
    over = ("--url", server.url, "--token", token)
    made = add(corbits, "The harbour is closed.", *over)
    code, out, errors = corbits("show", made["documentId"], *over)
    assert (code, "The harbour is closed." in out) == (0, True), errors
    code, out, _ = corbits("history", made["documentId"], *over, "--json")
    assert (code, len(one_json(out)["versions"])) == (0, 1)
