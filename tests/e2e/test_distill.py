"""``corbits-memory distill``: on a database, and on a server; the chat model is a real HTTP server."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Run, Server, add, corbits_memory, one_json, start
from tests.models.conftest import Answer, ModelServer, Request, few_certificates

__all__ = ["few_certificates"]


def claim(request: Request) -> Answer:
    document = json.loads(request.body["messages"][1]["content"])
    content = {
        "action": "write" if "harbour" in document["text"] else "poison",
        "reason": "nothing to do with harbours",
        "title": f"Claim: {document['text']}",
        "text": f"It is so: {document['text']}",
        "kind": "claim",
    }
    return Answer({"choices": [{"message": {"content": json.dumps(content)}, "finish_reason": "stop"}]})


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(claim)
        for name, value in settings(server).items():
            monkeypatch.setenv(name, value)
        yield server


def settings(chat: ModelServer) -> dict[str, str]:
    return {"DISTILL_BASE_URL": chat.url, "DISTILL_MODEL": "m", "DISTILL_TIMEOUT_MS": "5000"}


def once(corbits: Run, *words: object, code: int = 0) -> Any:
    ended, out, errors = corbits("distill", "--once", "--json", *words)
    assert ended == code, errors
    return one_json(out)


def test_a_page_on_a_database_and_the_next_one_where_it_ended(corbits: Run, chat: ModelServer) -> None:
    added = add(corbits, "The harbour opens at six.")
    first = once(corbits)
    assert (first["nextCursor"], first["processed"], first["wrote"][0]["status"]) == (1, 1, "created")
    assert once(corbits)["processed"] == 0
    code, out, errors = corbits("show", first["wrote"][0]["documentId"], "--json")
    assert code == 0, errors
    assert "It is so: The harbour opens at six." in out
    assert once(corbits, "--from", 0)["wrote"][0]["status"] == "unchanged"
    assert added["documentId"] != first["wrote"][0]["documentId"]


def test_what_was_given_up_is_listed_and_tried_again(corbits: Run, chat: ModelServer) -> None:
    add(corbits, "The bakery opens at five.")
    assert once(corbits)["poisoned"][0]["reason"] == "nothing to do with harbours"
    code, out, _ = corbits("distill", "--failed")
    assert code == 0
    assert "nothing to do with harbours" in out
    (listed,) = one_json(corbits("distill", "--failed", "--json")[1])
    assert (listed["seq"], listed["attempts"]) == (1, 1)
    assert [one["seq"] for one in once(corbits, "--retry")["poisoned"]] == [1]


def test_a_model_that_is_away_is_told_of(corbits: Run, chat: ModelServer) -> None:
    add(corbits, "The harbour opens at six.")
    chat.script(Answer(status=401))
    assert "401" in once(corbits, code=1)["problem"]
    code, _, errors = corbits("distill", "--once")
    assert code == 1
    assert "401" in errors
    chat.script(claim)
    assert len(once(corbits)["wrote"]) == 1


def test_without_a_model_it_says_what_to_set(corbits: Run) -> None:
    code, out, errors = corbits("distill", "--once")
    assert (code, out) == (1, "")
    assert "DISTILL_BASE_URL is not set; DISTILL_MODEL is not set" in errors


def test_on_a_server_the_cursor_is_in_a_file(
    server: Server, token: str, tmp_path: Path, chat: ModelServer
) -> None:
    there = ("--url", server.url, "--token", token)
    assert corbits_memory("add", "The harbour sleeps.", "--title", "H", *there).returncode == 0
    state = tmp_path / "cursor.json"
    words = ("distill", "--once", "--json", "--state", state, *there)
    first = one_json(corbits_memory(*words, **settings(chat)).stdout)
    assert len(first["wrote"]) == 1
    assert json.loads(state.read_text())["position"] == first["nextCursor"]
    assert one_json(corbits_memory(*words, **settings(chat)).stdout)["processed"] == 0
    found = corbits_memory("search", "harbour sleeps", "--kind", "claim", "--json", *there)
    assert "It is so: The harbour sleeps." in found.stdout


def test_a_resident_ends_in_good_order(data_dir: Path, server: Server, chat: ModelServer) -> None:
    assert corbits_memory("add", "The harbour wakes.", "--title", "H", "--data-dir", data_dir).returncode == 0
    running = start(
        "distill",
        "--json",
        "--agent",
        "mine",
        "--data-dir",
        data_dir,
        EMBED_PROVIDER="none",
        **settings(chat),
    )
    try:
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        assert told["wrote"]
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=20)
        assert running.returncode == 0
    finally:
        running.kill()
        running.communicate(timeout=10)
