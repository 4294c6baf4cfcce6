"""One server and the commands beside it, as in two terminals."""

import json
from pathlib import Path

import httpx2
import pytest

from corbits_memory.server.places import Choice, open_place
from tests.e2e.support import EXAMPLES, NO_MODEL, Server, corbits_memory, one_json, start, write_lines
from tests.embedded.support import wait_until

CORPUS = (EXAMPLES / "conversations.jsonl", EXAMPLES / "notes")


@pytest.fixture(scope="module")
def imported(server: Server, data_dir: Path) -> dict[str, int]:
    """The example corpus, imported by a second process while the server runs."""
    done = corbits_memory("import", *CORPUS, "--data-dir", data_dir, "--json", **NO_MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no bars where nobody watches"
    summary: dict[str, int] = one_json(done.stdout)
    return summary


def test_the_banner_says_where_on_what_and_as_whom(server: Server, data_dir: Path) -> None:
    told = server.told
    assert told["URL"].startswith("http://127.0.0.1:")
    assert told["Database"].startswith(f"embedded Postgres in {data_dir}")
    assert told["Tenant"] == "default"
    assert told["Token"].startswith("cmt_")
    assert "search by words alone" in told["Model"]
    assert f"corbits-memory import --data-dir {data_dir} FILES" in server.text


def test_nothing_of_a_token_or_a_query_is_logged(server: Server, token: str) -> None:
    server.search(token, "xylophone-in-the-query")
    wait_until(lambda: any("memory/search" in line for line in server.errors))
    logged = "".join(server.errors)
    assert token not in logged
    assert "xylophone" not in logged


def test_http_adds_and_finds_with_the_first_token(server: Server, token: str) -> None:
    with server.client(token) as client:
        added = client.post(
            "/api/tenants/default/memory/add",
            json={"title": "Harbour", "text": "The crane is painted turquoise.", "external_ref": "crane"},
        )
    assert added.json()["status"] == "created"
    (item, *_) = server.search(token, "turquoise crane")["items"]
    assert item["citation"]["external_ref"] == "crane"


def test_a_wrong_token_and_a_wrong_tenant_are_refused(server: Server, token: str) -> None:
    with server.client("cmt_wrong") as client:
        assert client.get("/api/tenants/default/memory/list").status_code == 401
    with server.client(token) as client:
        assert client.get("/api/tenants/default-corp/memory/list").status_code == 403


def test_the_import_counts_what_it_did(imported: dict[str, int]) -> None:
    assert (imported["created"], imported["failed"]) == (66, 0)


@pytest.mark.parametrize(
    ("question", "refs"),
    [
        ("What is Tomas allergic to?", {"kitchen-02"}),
        ("TS-0x5F", {"sensor-02", "sensor-03"}),
        ("Where is the spare thermistor kept?", {"sensor-05", "sensor-04"}),
        ("How long are backups kept?", {"notes/backup-policy.md"}),
        ("Wo darf man löten? Lötarbeiten", {"notes/hausordnung.md"}),
        ("电池电压", {"notes/guanchazhan.md"}),
        ("青い蓋", {"notes/guanchazhan.md"}),
    ],
)
def test_the_imported_turn_is_found_over_http(
    server: Server, token: str, imported: dict[str, int], question: str, refs: set[str]
) -> None:
    found = server.search(token, question)
    assert found["items"][0]["externalRef"] in refs
    assert found["items"][0]["citation"]["external_ref"] in refs
    assert found["evidence"] in {"strong", "weak"}
    assert "lexical_only" in found["degraded"]


def test_search_prints_title_score_evidence_citation_and_what_is_missing(
    data_dir: Path, imported: dict[str, int]
) -> None:
    done = corbits_memory("search", "What is Tomas allergic to?", "--data-dir", data_dir, **NO_MODEL)
    assert done.returncode == 0, done.stderr
    first, about, snippet, cite = done.stdout.splitlines()[:4]
    assert first == " 1. Recipes for the team dinner"
    assert "score " in about
    assert "Tomas" in about
    assert "walnuts" in snippet
    assert cite.strip() == "cite http:kitchen-02"
    assert "evidence: " in done.stdout
    assert "degraded: " in done.stdout


def test_a_repeated_import_changes_nothing_from_anywhere(
    server: Server, token: str, imported: dict[str, int], tmp_path: Path
) -> None:
    done = corbits_memory(
        "import", *CORPUS, "--json", CORBITS_MEMORY_URL=server.url, CORBITS_MEMORY_TOKEN=token
    )
    assert done.returncode == 0, done.stderr
    summary = one_json(done.stdout)
    assert (summary["unchanged"], summary["created"], summary["updated"]) == (66, 0, 0)


def test_an_import_over_http_tells_bad_lines_and_stores_the_others(
    server: Server, token: str, tmp_path: Path
) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(
        '{"title": "One", "text": "A bittern booms.", "external_ref": "b-1", "mood": "ignored"}\n'
        "{not json\n"
        "\n"
        '{"title": "Three"}\n'
        '["a", "list"]\n'
        '{"title": "Six", "text": "A lapwing calls.", "external_ref": "b-6"}\n',
        encoding="utf-8",
    )
    done = corbits_memory("import", path, "--url", server.url, "--token", token)
    assert done.returncode == 1
    assert done.stdout.strip() == "2 created, 0 updated, 0 unchanged, 3 failed"
    for number in (2, 4, 5):
        assert f"{path}:{number}: " in done.stderr
    assert server.search(token, "lapwing")["items"][0]["externalRef"] == "b-6"


def test_a_killed_import_goes_on_where_it_was(
    server: Server, token: str, data_dir: Path, tmp_path: Path
) -> None:
    total = 2_000
    path = write_lines(
        tmp_path / "many.jsonl",
        [{"title": f"Turn {n}", "text": f"Number {n} of the zebra crossing."} for n in range(total)],
    )
    words = ("import", path, "--batch-size", 25, "--data-dir", data_dir, "--json")
    process = start(*words, **NO_MODEL)
    wait_until(lambda: server.search(token, "zebra crossing")["items"])
    assert process.poll() is None, "it was over before it could be killed: make the file longer"
    process.kill()
    process.communicate()
    again = corbits_memory(*words, **NO_MODEL)
    assert again.returncode == 0, again.stderr
    summary = one_json(again.stdout)
    assert summary["created"] + summary["unchanged"] == total
    assert summary["created"] > 0
    assert summary["unchanged"] > 0


def test_list_over_http_and_directly_are_the_same(server: Server, token: str, data_dir: Path) -> None:
    remote = corbits_memory("list", "--limit", 5, "--json", "--url", server.url, "--token", token)
    direct = corbits_memory("list", "--limit", 5, "--json", "--data-dir", data_dir, **NO_MODEL)
    assert one_json(remote.stdout) == one_json(direct.stdout)


def test_a_token_of_another_tenant_sees_nothing_of_the_first(
    server: Server, data_dir: Path, imported: dict[str, int]
) -> None:
    words = ("--tenant", "acme", "--principal", "ann", "--json", "--data-dir", data_dir)
    made = one_json(corbits_memory("token", "create", *words).stdout)
    remote = ("--url", server.url, "--token", made["token"])
    foreign = corbits_memory("search", "Tomas", *remote)
    assert foreign.returncode == 1
    assert "--tenant" in foreign.stderr
    own = corbits_memory("search", "Tomas", *remote, "--tenant", "acme")
    assert own.returncode == 0
    assert "holds nothing that you may see yet" in own.stdout
    assert corbits_memory("token", "revoke", made["id"], "--data-dir", data_dir).returncode == 0
    with server.client(made["token"]) as client:
        assert client.get("/api/tenants/acme/memory/list").status_code == 401


def test_a_taken_port_is_told_before_anything_is_started(server: Server, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    other = tmp_path / "other"
    done = corbits_memory("serve", "--port", port, "--data-dir", other, **NO_MODEL)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: Port {port} ")
    assert done.stderr.count("\n") == 1
    assert not other.exists()


def test_a_misspelt_variable_is_told(server: Server, data_dir: Path) -> None:
    with open_place(Choice(data_dir=data_dir), {"DATABSE_URL": "postgresql://x/y"}) as place:
        assert "DATABSE_URL is set, but the variable is called DATABASE_URL" in place.warnings[-1]


def test_health_metrics_and_docs_answer(server: Server) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
        assert httpx2.get(server.url + path, trust_env=False).status_code == 200, path
    assert json.loads(httpx2.get(f"{server.url}/readyz", trust_env=False).text)["status"] == "ready"


def test_forgetting_on_a_server(server: Server, token: str) -> None:
    remote = ("--url", server.url, "--token", token)
    added = one_json(corbits_memory("add", "The ocelot hums.", "--json", *remote).stdout)
    done = corbits_memory("forget", added["documentId"], "--json", *remote)
    assert one_json(done.stdout)["versions"] == 1
    assert one_json(corbits_memory("purge", added["documentId"], "--json", *remote).stdout)["deleted"] is True
    again = corbits_memory("purge", added["documentId"], *remote)
    assert again.returncode == 1
    assert "document not found" in again.stderr
