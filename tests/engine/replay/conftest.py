"""Models of the tests' own, and stores with one."""

from typing import Any

import pytest

from tests.engine.support import OpenStore
from tests.models.conftest import ModelServer, nobody, server

__all__ = ["nobody", "server"]


@pytest.fixture
def store_of(open_store: OpenStore, word_server: ModelServer) -> OpenStore:
    """``await store_of(**config)``: a store whose model has bags of words for vectors."""

    def make(**config: Any) -> Any:
        return open_store(embed_url=word_server.url, **config)

    return make
