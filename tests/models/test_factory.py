import pytest

from corbits_memory.config import EmbedConfig, EmbedStyle
from corbits_memory.errors import ConfigError
from corbits_memory.models.factory import build_embedder
from tests.models.conftest import ModelServer
from tests.models.embedding import CLIENTS, embed, vector


@pytest.mark.parametrize("style", list(CLIENTS))
async def test_each_style_is_built_cached(server: ModelServer, style: EmbedStyle) -> None:
    server.script(embed)
    embedder = build_embedder(EmbedConfig(base_url=server.url, model="m", api_style=style))
    assert embedder is not None
    for _ in range(2):
        assert await embedder.embed(["q"], purpose="query") == [vector("q")]
    assert len(server.requests) == 1
    assert (embedder.base_url, embedder.model, embedder.api_style) == (server.url, "m", style)
    assert embedder.batch_size == 32
    await embedder.aclose()


def test_no_configuration_no_embedder() -> None:
    assert build_embedder(None) is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"api_style": "cohere"}, "openai, tei, ollama"),
        ({"model": " "}, "EMBED_MODEL"),
        ({"base_url": "h:1"}, "EMBED_BASE_URL"),
        ({"batch_size": 0}, "EMBED_BATCH_SIZE"),
        ({"api_style": "local"}, "local embedding model"),
    ],
)
def test_a_configuration_that_can_not_work_is_refused(fields: dict[str, object], named: str) -> None:
    settings: dict[str, object] = {"base_url": "http://h", "model": "m", **fields}
    with pytest.raises(ConfigError, match=named):
        build_embedder(EmbedConfig(**settings))  # type: ignore[arg-type]
