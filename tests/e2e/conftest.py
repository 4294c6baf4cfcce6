"""A server a module, on an embedded database of its own, without a model."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from corbits_memory.cli.run import run
from corbits_memory.config import EngineConfig
from corbits_memory.server.startup import migrate
from tests.e2e.support import Run, Server
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data") / "memory"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Server]:
    with Server("--data-dir", data_dir) as running:
        yield running


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    """The first token, from the banner."""
    return server.told["Token"]


@pytest.fixture
def database(new_database: NewDatabase) -> str:
    url = new_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    return url


@pytest.fixture
def corbits(database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``corbits("add", …)`` in this process, on the test's database: exit code, output, errors."""
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setenv("EMBED_PROVIDER", "none")

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call
