"""A package with chunk strategies, installed for a test."""

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from corbits_memory import chunkers

_numbers = itertools.count()


class InstallChunkers(Protocol):
    def __call__(self, source: str, **strategies: str) -> Callable[[], None]:
        """Install a module of this source, whose functions are the strategies' by name. The answer uninstalls it."""
        ...


def _forget() -> None:
    chunkers._installed.cache_clear()
    chunkers._load.cache_clear()


@pytest.fixture
def install_chunkers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallChunkers]:
    def install(source: str, **strategies: str) -> Callable[[], None]:
        name = f"acme_chunkers_{next(_numbers)}"
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = "".join(f"{strategy} = {name}:{function}\n" for strategy, function in strategies.items())
        (info / "entry_points.txt").write_text(f"[{chunkers.GROUP}]\n{points}")
        (tmp_path / f"{name}.py").write_text(f"from corbits_memory.chunkers import Piece\n\n\n{source}")
        monkeypatch.syspath_prepend(str(tmp_path))
        _forget()

        def uninstall() -> None:
            shutil.rmtree(info)
            _forget()

        return uninstall

    yield install
    monkeypatch.undo()
    for module in [name for name in sys.modules if name.startswith("acme_chunkers_")]:
        del sys.modules[module]
    _forget()
