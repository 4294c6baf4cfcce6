"""``corbits-memory transform`` and ``worker``: real processes on a database of their own, killed in the middle."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from corbits_memory.cli.run import run
from tests.e2e.support import Server, corbits_memory, one_json, start
from tests.embedded.support import wait_until
from tests.engine.conftest import embed_words
from tests.models.conftest import Answer, ModelServer, Request
from tests.support.postgres import NewDatabase

PLAIN = {"chunk": {"strategy": "token.recursive", "maxTokens": 10}}
TEXT = "The vault opens at nine. Maria keeps the key in her desk. Nobody else may have it."
Told = tuple[int, str, str]


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(embed_words)
        yield server


@pytest.fixture(scope="module")
def environ(model: ModelServer) -> dict[str, str]:
    return {"EMBED_BASE_URL": model.url, "EMBED_MODEL": "words", "EMBED_TIMEOUT_MS": "60000"}


@pytest.fixture(scope="module")
def server(data_dir: Path, environ: dict[str, str]) -> Iterator[Server]:
    with Server("--data-dir", data_dir, extra=environ) as running:
        yield running


@pytest.fixture(params=["server", "database"])
def target(request: pytest.FixtureRequest, server: Server, token: str, data_dir: Path) -> tuple[object, ...]:
    return ("--url", server.url, "--token", token) if request.param == "server" else ("--data-dir", data_dir)


@pytest.fixture
def transform(
    target: tuple[object, ...],
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Told]:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    def call(*words: object) -> Told:
        code = run(["transform", *map(str, words), *map(str, target)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_from_a_config_to_a_promotion_and_back(
    transform: Callable[..., Told], server: Server, token: str, tmp_path: Path
) -> None:
    with server.client(token) as client:
        client.post(
            "/api/tenants/default/memory/add", json={"title": "Vault", "text": TEXT, "external_ref": "n1"}
        )
    params = tmp_path / "params.json"
    params.write_text(json.dumps({**PLAIN, "embed": {"apiKey": "sekret"}}))
    code, out, errors = transform("create", "small", "--params", f"@{params}", "--json")
    assert (code, errors) == (0, "")
    config: dict[str, Any] = one_json(out)
    assert config["secrets"] == ["embed.apiKey"]
    other = one_json(transform("create", "small", "--params", json.dumps(PLAIN), "--json")[1])
    assert other["version"] == config["version"] + 1
    code, out, _ = transform("diff", config["id"], other["id"])
    assert (code, "embed.apiKey" in out, "sekret" in out) == (0, True, False)
    assert transform("delete", other["id"])[0] == 0

    code, out, errors = transform("run", config["id"], "--json")
    assert (code, errors) == (0, "")
    made: dict[str, Any] = one_json(out)
    assert (made["status"], made["raw_count"], made["generation"]) == ("completed", 1, made["id"])
    code, out, _ = transform("list")
    assert (code, made["id"] in out, config["id"] in out, "sekret" in out) == (0, True, True, False)
    assert "completed" in transform("show", made["id"])[1]
    assert "embed.apiKey is set" in transform("show", config["id"])[1]

    promoted = one_json(transform("promote", made["generation"], "--json")[1])
    assert (promoted["live"], promoted["archived_live_generation"]) == (True, "g0")
    assert server.search(token, "vault key")["items"][0]["title"] == "Vault"
    code, out, errors = transform("promote", made["generation"])
    assert (code, out) == (1, "")
    assert "promoted already" in errors
    assert transform("demote", made["generation"])[:2] == (0, f"{made['generation']} is not live any more\n")
    code, _, errors = transform("demote", made["generation"])
    assert (code, "not the one that is promoted" in errors) == (1, True)
    for word in ("pause", "resume", "cancel", "retry"):
        assert transform(word, made["id"])[0] == 1


@pytest.fixture
def held(model: ModelServer) -> Iterator[threading.Event]:
    """A model that answers nobody who derives ``TEXT`` until this is set."""
    opened = threading.Event()

    def answer(request: Request) -> Answer:
        if any(TEXT[:8] in text for text in request.body["input"]):
            opened.wait(60)
        return embed_words(request)

    model.script(answer)
    yield opened
    opened.set()
    model.script(embed_words)


def test_a_run_is_paused_resumed_cancelled_and_tried_again(
    transform: Callable[..., Told], server: Server, token: str, held: threading.Event
) -> None:
    """While its model answers nothing it runs, so that each state lasts until it was looked at."""
    held.set()
    body = {"title": "Vault", "text": TEXT, "external_ref": "n1"}
    with server.client(token) as client:
        client.post("/api/tenants/default/memory/add", json=body).raise_for_status()
        held.clear()
        config = one_json(transform("create", "held", "--params", json.dumps(PLAIN), "--json")[1])
        run_id = one_json(transform("run", config["id"], "--no-wait", "--json")[1])["id"]

        def change(word: str) -> tuple[str, bool, str | None]:
            code, out, errors = transform(word, run_id, "--json")
            assert (code, errors) == (0, "")
            told = one_json(out)
            assert told["id"] == run_id
            return told["status"], told["paused"], told["error"]

        def status() -> str:
            return str(client.get(f"/api/tenants/default/memory/transform-runs/{run_id}").json()["status"])

        assert change("pause") == ("running", True, None)
        assert f"{run_id}  paused\n" in transform("show", run_id)[1]
        assert change("resume") == ("running", False, None)
        assert f"{run_id}  running\n" in transform("show", run_id)[1]
        assert change("pause") == ("running", True, None)
        code, out, _ = transform("resume", run_id)
        assert (code, out.splitlines()[0]) == (0, f"{run_id}  running")
        assert change("cancel") == ("failed", False, "cancelled")
        assert transform("cancel", run_id)[0] == 1
        assert change("retry") == ("running", False, None)
        held.set()
        wait_until(lambda: status() == "completed")


def test_two_generations_are_asked_the_same(
    transform: Callable[..., Told], server: Server, token: str, tmp_path: Path
) -> None:
    with server.client(token) as client:
        for number in range(4):
            client.post(
                "/api/tenants/default/memory/add",
                json={
                    "title": f"Shelf {number}",
                    "text": f"{TEXT} <b>{number}</b>",
                    "external_ref": f"s{number}",
                },
            )
    config = one_json(transform("create", "compared", "--params", json.dumps(PLAIN), "--json")[1])
    made = one_json(transform("run", config["id"], "--json")[1])
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        'vault key\n\n{"query": "shelf 2", "relevant": ["s2"], "id": "7"}\n'
        '{"question": "nothing of this kind <i>", "kinds": ["unknown"]}\n'
    )
    page = tmp_path / "report.html"
    code, out, errors = transform("compare", made["generation"], "--queries", queries, "--html", page)
    assert (code, errors) == (0, "")
    assert out.startswith("3 queries, ")
    assert "Of 1 judged queries" in out
    assert "recall@10" in out
    html = page.read_text()
    assert html.count("<svg") == 2
    assert "<b>2" not in html
    assert "nothing of this kind &lt;i&gt;" in html
    told = one_json(transform("compare", made["generation"], "--queries", queries, "--json")[1])
    assert (told["queries"], told["judged"], len(told["perQuery"])) == (3, 1, 3)
    assert told["before"]["recallAt10"] == told["after"]["recallAt10"] == 1.0
    assert {hit["externalRef"] for hit in told["perQuery"][1]["after"]} >= {"s2"}
    assert told["perQuery"][2]["overlapAt10"] == 1.0
    code, _, errors = transform("compare", made["generation"])
    assert (code, "no question was kept here" in errors) == (1, True)
    with server.client(token) as client:
        assert client.get("/api/tenants/default/memory/queries").json() == {"queries": []}
    same = one_json(
        transform("compare", made["id"], "--against", made["id"], "--queries", queries, "--json")[1]
    )
    assert (same["sameAnswers"], same["overlapAt10"], same["onlyBefore"]) == (3, 1.0, 0)


def test_what_was_asked_is_asked_of_another_generation(new_database: NewDatabase, model: ModelServer) -> None:
    environ = {
        "DATABASE_URL": new_database(),
        "EMBED_BASE_URL": model.url,
        "EMBED_MODEL": "words",
        "QUERY_LOG_PERCENT": "100",
    }
    assert corbits_memory("db", "migrate", **environ).returncode == 0
    assert corbits_memory("add", TEXT, "--title", "Vault", **environ).returncode == 0
    for query in ("vault key", "who may have it", "vault key"):
        assert corbits_memory("search", query, **environ).returncode == 0
    lines = corbits_memory("transform", "queries", **environ).stdout.splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["vault key", "who may have it", "vault key"]
    made = corbits_memory("transform", "create", "small", "--params", json.dumps(PLAIN), "--json", **environ)
    run_id = one_json(
        corbits_memory("transform", "run", one_json(made.stdout)["id"], "--json", **environ).stdout
    )["id"]
    told = one_json(corbits_memory("transform", "compare", run_id, "--json", **environ).stdout)
    assert [one["query"] for one in told["perQuery"]] == ["vault key", "who may have it"]
    # To compare is not to ask.
    assert corbits_memory("transform", "queries", **environ).stdout.splitlines() == lines


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "without a query"),
        ("one\n{broken\n", "line 2 begins like JSON"),
        ('{"relevant": []}', 'line 1 has no "query"'),
        ('{"query": " "}', 'line 1 has no "query"'),
        ('{"query": "a", "relevant": [1]}', "must list external refs"),
        ("q\n" * 10_001, "at most 10,000"),
    ],
)
def test_queries_that_can_not_be_read_are_told_by_their_line(
    transform: Callable[..., Told], tmp_path: Path, lines: str, told: str
) -> None:
    queries = tmp_path / "queries"
    queries.write_text(lines)
    code, out, errors = transform("compare", "trun_x", "--queries", queries)
    assert (code, out) == (1, "")
    assert told in errors
    code, _, errors = transform("compare", "trun_x", "--queries", tmp_path / "none")
    assert (code, "can't be read" in errors) == (1, True)


def test_what_is_wrong_is_told(transform: Callable[..., Told], tmp_path: Path) -> None:
    for words, told in (
        (("create", "a", "--params", "{"), "--params is not JSON"),
        (("create", "a", "--params", f"@{tmp_path / 'none'}"), "can't be read"),
        (("create", "a", "--params", '{"chunk": {"strategy": "x"}}'), "chunk.strategy"),
        (("run", "tcfg_unknown"), "no such transform config"),
        (("show", "trun_unknown"), "no such transform run"),
        (("promote", "trun_unknown"), "no such transform run"),
        (("promote", "live"), "live already"),
    ):
        code, out, errors = transform(*words)
        assert (code, out) == (1, ""), words
        assert told in errors
    config = one_json(transform("create", "a", "--params", json.dumps(PLAIN), "--json")[1])
    code, out, _ = transform("run", config["id"], "--adapter", "nobody", "--json")
    assert (code, one_json(out)["error"]) == (1, "no raw capture is in the run's scope")


def test_workers_that_are_killed_leave_their_work_to_others(
    new_database: NewDatabase, model: ModelServer
) -> None:
    """SIGKILL in the middle of slices, several times; in the end every capture was derived once."""
    url = new_database()
    slow = 0.0

    def answer(request: Request) -> Answer:
        time.sleep(slow)
        return embed_words(request)

    with ModelServer() as server:
        server.script(answer)
        environ = {"DATABASE_URL": url, "EMBED_BASE_URL": server.url, "EMBED_MODEL": "words"}
        assert corbits_memory("db", "migrate", **environ).returncode == 0
        from tests.e2e.support import write_lines

        folder = Path(os.environ.get("TMPDIR", "/tmp"))
        lines = write_lines(
            folder / f"captures-{os.getpid()}.jsonl",
            [{"title": f"N{i}", "text": f"{TEXT} Number {i}.", "external_ref": f"n{i}"} for i in range(250)],
        )
        try:
            assert corbits_memory("import", lines, **environ).returncode == 0
        finally:
            lines.unlink()
        made = corbits_memory(
            "transform", "create", "small", "--params", json.dumps(PLAIN), "--json", **environ
        )
        begun = corbits_memory(
            "transform", "run", one_json(made.stdout)["id"], "--no-wait", "--json", **environ
        )
        run_id = one_json(begun.stdout)["id"]
        slow = 0.05
        with psycopg.connect(url, autocommit=True) as conn:

            def count(query: str, *parameters: object) -> int:
                row = conn.execute(query, parameters).fetchone()
                return int(row[0]) if row else 0

            written = "SELECT count(*) FROM memory.version WHERE generation = %s"
            for least in (1, 60, 120):
                worker = start("worker", **environ)
                wait_until(lambda least=least: count(written, run_id) >= least)  # type: ignore[misc]
                worker.send_signal(signal.SIGKILL)
                worker.communicate(timeout=30)
                # Else their leases would be waited for.
                conn.execute("UPDATE memory.transform_slice SET leased_until = now()")
                conn.execute("UPDATE memory.embed_queue SET not_before = now()")
            assert count("SELECT count(*) FROM memory.transform_slice WHERE status = 'pending'") > 0
            slow = 0.0
            workers = [start("worker", "--concurrency", 2, **environ) for _ in range(2)]
            wait_until(
                lambda: count("SELECT count(*) FROM memory.transform_run WHERE status <> 'running'") == 1
            )
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
                assert worker.communicate(timeout=30) is not None
                assert worker.returncode == 0
            told = one_json(corbits_memory("transform", "show", run_id, "--json", **environ).stdout)
            assert (told["status"], told["raw_count"], told["version_count"], told["failures"]) == (
                "completed",
                250,
                250,
                [],
            )
            assert (
                count(
                    "SELECT count(DISTINCT (document_id, version)) FROM memory.version WHERE generation = %s",
                    run_id,
                )
                == 250
            )
            (key,) = conn.execute("SELECT model_key FROM memory.embed_model").fetchone() or ("",)
            assert count("SELECT count(*) FROM memory.embed_queue") == 0
            searched = count("SELECT count(*) FROM memory.search_row WHERE generation = %s", run_id)
            assert (
                count(f"SELECT count(*) FROM memory.embedding_{key} WHERE generation = %s", run_id)
                == searched
            )
            promoted = corbits_memory("transform", "promote", run_id, **environ)
            assert promoted.returncode == 0, promoted.stderr
