"""A server a module, on an embedded database of its own, without a model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import Server


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
