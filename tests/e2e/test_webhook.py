"""``corbits-memory webhook``: against a running server, and a delivery from end to end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.cli.run import run
from tests.e2e.support import NO_MODEL, Server, one_json
from tests.embedded.support import wait_until
from tests.engine.receiver import Receiver, Reply

Told = tuple[int, str, str]
ALLOWED = {"WEBHOOK_ALLOW_HTTP": "true", "WEBHOOK_ALLOWED_HOSTS": "127.0.0.1"}


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Server]:
    """One whose operator allows webhooks to this machine."""
    with Server("--data-dir", data_dir, extra={**NO_MODEL, **ALLOWED}) as running:
        yield running


@pytest.fixture(params=["server", "database"])
def target(request: pytest.FixtureRequest, server: Server, token: str, data_dir: Path) -> tuple[object, ...]:
    return ("--url", server.url, "--token", token) if request.param == "server" else ("--data-dir", data_dir)


@pytest.fixture
def webhook(
    target: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    for name, value in {**NO_MODEL, **ALLOWED}.items():
        monkeypatch.setenv(name, value)

    def call(*words: object) -> Told:
        code = run(["webhook", *map(str, words), *map(str, target)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_from_adding_to_removing(webhook: Callable[..., Told], server: Server, token: str) -> None:
    taking = [False]
    with Receiver(lambda _: Reply(200 if taking[0] else 500, {"retry-after": "0"})) as receiver:
        code, out, errors = webhook("add", receiver.url, "--text", "--json")
        assert (code, errors) == (0, "")
        made: dict[str, Any] = one_json(out)
        assert made["secret"].startswith("whsec_")
        assert made["url"] == receiver.url
        with server.client(token) as client:
            added = client.post(
                "/api/tenants/default/memory/add", json={"title": "Harbour", "text": "A crane."}
            ).json()
        wait_until(lambda: bool(receiver.received))
        code, out, _ = webhook("list")
        assert (code, made["id"] in out, made["secret"] in out) == (0, True, False)
        taking[0] = True
        seen = len(receiver.received)
        wait_until(lambda: len(receiver.received) > seen)
        entry = receiver.received[-1].json["entry"]
        assert (entry["versionId"], entry["text"]) == (added["versionId"], "A crane.")
    assert webhook("dead", made["id"])[0] == 0
    assert webhook("replay", made["id"])[:2] == (0, "0 will be sent again\n")
    assert webhook("remove", made["id"])[:2] == (0, f"removed {made['id']}\n")
    code, out, errors = webhook("remove", made["id"])
    assert (code, out) == (1, "")
    assert "subscription not found" in errors


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://[::1]/x", "https://user:pw@127.0.0.1/", "x"])
def test_a_url_that_may_not_be_called(webhook: Callable[..., Told], url: str) -> None:
    code, out, errors = webhook("add", url)
    assert (code, out) == (1, "")
    assert "url" in errors
    assert "pw" not in errors
