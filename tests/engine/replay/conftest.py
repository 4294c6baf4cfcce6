"""Models of the tests' own, and stores with one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.conftest import DIMS, word_vector
from tests.engine.support import OpenStore
from tests.models.conftest import Answer, ModelServer, Request, nobody, server

__all__ = ["nobody", "server"]


@pytest.fixture
def store_of(open_store: OpenStore, word_server: ModelServer) -> OpenStore:
    """``await store_of(**config)``: a store whose model has bags of words for vectors."""

    def make(**config: Any) -> Any:
        return open_store(embed_url=word_server.url, **config)

    return make


@pytest.fixture
def other_server() -> Iterator[ModelServer]:
    """Another model: other dimensions."""

    def embed(request: Request) -> Answer:
        texts = request.body["input"]
        return Answer(
            {"data": [{"index": i, "embedding": word_vector(text, 2 * DIMS)} for i, text in enumerate(texts)]}
        )

    with ModelServer() as server:
        server.script(embed)
        yield server
