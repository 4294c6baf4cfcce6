"""Every server that a test starts is gone after it, however the test ends."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.support import User, can_mount, kill_all

NewUser = Callable[..., User]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    kill_all(folder)


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
