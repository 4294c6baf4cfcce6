"""The protocols of embedding servers, as far as the tests speak them."""

from typing import Any

from corbits_memory.config import EmbedConfig, EmbedStyle
from corbits_memory.models.embedding import HttpEmbedder
from corbits_memory.models.ollama import OllamaEmbedder
from corbits_memory.models.openai import OpenAIEmbedder
from corbits_memory.models.tei import TeiEmbedder
from tests.models.conftest import Answer, Request

CLIENTS: dict[EmbedStyle, type[HttpEmbedder]] = {
    "openai": OpenAIEmbedder,
    "tei": TeiEmbedder,
    "ollama": OllamaEmbedder,
}
KEY = "sk-very-secret-0123456789"


def client(url: str, style: EmbedStyle = "openai", **fields: Any) -> HttpEmbedder:
    settings: dict[str, Any] = {"timeout_ms": 10_000, "api_key": KEY, **fields}
    return CLIENTS[style](EmbedConfig(base_url=url, model="m", api_style=style, **settings))


def vector(text: str) -> list[float]:
    """A vector that tells its text: three numbers of it."""
    return [float(len(text)), float(sum(map(ord, text)) % 997), 1.0]


def texts_of(request: Request) -> list[str]:
    body = request.body
    texts: list[str] = body["inputs"] if "inputs" in body else body["input"]
    return texts


def wrap(path: str, vectors: list[Any]) -> Any:
    if path.endswith("/v1/embeddings"):
        return {"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]}
    return {"embeddings": vectors} if path.endswith("/api/embed") else vectors


def embed(request: Request) -> Answer:
    return Answer(wrap(request.path, [vector(text) for text in texts_of(request)]))


def vectors(*rows: Any) -> Any:
    """A script that answers with these rows whatever was asked."""
    return lambda request: Answer(wrap(request.path, list(rows)))
