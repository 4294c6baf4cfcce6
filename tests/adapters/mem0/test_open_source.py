"""The store over the real open-source Mem0: its own storage, filters and scores."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from corbits_memory.adapters.mem0 import Mem0DocumentStore
from corbits_memory.testing.conformance import DocumentStoreConformance, VisibilityConformance
from tests.adapters.mem0.test_mem0 import EXCEPTIONS
from tests.adapters.service import KEY

pytest.importorskip("mem0", reason="mem0ai is not installed")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mem0")
    environment = {
        **os.environ,
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(folder),
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.adapters.mem0.open_source", str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        found = process.stdout.readline().strip()
        assert found, (folder / "log").read_text()
        yield found
        process.terminate()


class OpenSource:
    @pytest.fixture
    def factory(self, url: str) -> Callable[[], Mem0DocumentStore]:
        return lambda: Mem0DocumentStore(api_key=KEY, base_url=url)


class TestDocuments(OpenSource, DocumentStoreConformance):
    exceptions: ClassVar = {
        **EXCEPTIONS,
        "test_a_long_text_is_one_document_and_shown_in_part": "one vector stands for all of a text",
    }


class TestVisibility(OpenSource, VisibilityConformance):
    pass
