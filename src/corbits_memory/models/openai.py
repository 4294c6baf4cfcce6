"""Embeddings in the style of OpenAI: vLLM, llama.cpp, LM Studio, LiteLLM and many more speak it."""

from collections.abc import Sequence
from typing import Any

from corbits_memory.models.embedding import HttpEmbedder
from corbits_memory.models.endpoint import AnswerError
from corbits_memory.models.vectors import member


class OpenAIEmbedder(HttpEmbedder):
    path = "/v1/embeddings"
    style = "openai"

    def request(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "input": list(texts)}

    def rows(self, answer: Any) -> Any:
        data = member(answer, "data")
        if not isinstance(data, list):
            raise AnswerError("its 'data' is not a list")
        vectors = [member(item, "embedding") for item in data]
        indexes = [item.get("index") for item in data]
        if all(index is None for index in indexes):
            return vectors  # some servers leave the index out and keep the order
        if any(type(index) is not int for index in indexes) or sorted(indexes) != list(range(len(data))):
            raise AnswerError("its 'index' values don't number the texts")
        return [vector for _, vector in sorted(zip(indexes, vectors, strict=True), key=lambda pair: pair[0])]
