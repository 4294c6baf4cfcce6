"""Embeddings in the style of Ollama."""

from collections.abc import Sequence
from typing import Any

from corbits_memory.models.embedding import HttpEmbedder
from corbits_memory.models.vectors import member


class OllamaEmbedder(HttpEmbedder):
    path = "/api/embed"
    style = "ollama"

    def request(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "input": list(texts), "truncate": True}

    def rows(self, answer: Any) -> Any:
        return member(answer, "embeddings")
