"""Embeddings in the style of Hugging Face's Text Embeddings Inference."""

from collections.abc import Sequence
from typing import Any

from corbits_memory.models.embedding import HttpEmbedder


class TeiEmbedder(HttpEmbedder):
    path = "/embed"
    style = "tei"

    def request(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"inputs": list(texts)}

    def rows(self, answer: Any) -> Any:
        return answer
