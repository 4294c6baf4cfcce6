"""Every server that a test starts is gone after it, however the test ends."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from tests.embedded.support import User, can_mount, kill_all

NewUser = Callable[..., User]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    kill_all(folder)


@pytest.fixture(scope="session")
def finished_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was used once, to be copied: faster than a first start for each test."""
    folder = tmp_path_factory.mktemp("finished") / "data"
    EmbeddedPostgres.start(folder).stop()
    return folder


@pytest.fixture
def made_dir(data_dir: Path, finished_dir: Path) -> Path:
    """The test's ``data_dir``, with a cluster in it."""
    subprocess.run(["cp", "-a", str(finished_dir), str(data_dir)], check=True)
    return data_dir


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="corbits-memory-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        kill_all(folder)


@pytest.fixture
def new_user(data_dir: Path) -> Iterator[NewUser]:
    """``new_user()`` starts a process that uses the server of ``data_dir``; options as :class:`User`."""
    with contextlib.ExitStack() as users:

        def make(folder: Path = data_dir, **options: Any) -> User:
            user = User(folder, **options)
            users.callback(user.kill)
            return user

        yield make


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")


@pytest.fixture
def own_mounts() -> None:
    if not can_mount():
        pytest.skip("mounting is not allowed here")
