"""The open-source Mem0 behind the paths of its platform: ``python open_source.py FOLDER``, prints its URL.

A process of its own, since the package brings threads and warnings along. It extracts nothing here, so its
language model is never asked; texts are embedded by the words in them.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import mem0

from corbits_memory.core.text import words

DIMS = 8_192
"""Texts carry ids, whose parts are words too: of few dimensions they meet what is asked, now and then."""


def vector(text: str) -> list[float]:
    found = [0.0001] * DIMS
    for word in words(text):
        found[int.from_bytes(word.encode(), "big") % (DIMS - 1)] += 1.0  # a prime
    return found


class Embeddings(BaseHTTPRequestHandler):
    """OpenAI's embeddings, as Mem0 asks for them."""

    def do_POST(self) -> None:
        given = _body(self)["input"]
        texts = given if isinstance(given, list) else [given]
        data = [
            {"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        _answer(self, 200, {"object": "list", "model": "words", "data": data, "usage": usage})

    def log_message(self, *_: object) -> None: ...


def platform(memory: Any) -> type[BaseHTTPRequestHandler]:
    lock = Lock()  # the vector store of one process is no server

    class Platform(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = _body(self)
            with lock:
                try:
                    if self.path == "/v3/memories/add/":
                        _answer(self, 200, memory.add(body.pop("messages"), **body))
                    else:
                        _answer(self, 200, memory.search(body.pop("query"), **body))
                except Exception as error:  # noqa: BLE001 - told to whoever asks
                    _answer(self, 400, {"detail": repr(error)})

        def log_message(self, *_: object) -> None: ...

    return Platform


def _body(request: BaseHTTPRequestHandler) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.rfile.read(int(request.headers["content-length"])))
    return found


def _answer(request: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    content = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def main(folder: Path) -> None:
    embeddings = ThreadingHTTPServer(("127.0.0.1", 0), Embeddings)
    Thread(target=embeddings.serve_forever, daemon=True).start()
    model = {"api_key": "none", "openai_base_url": f"http://127.0.0.1:{embeddings.server_port}/v1"}
    memory = mem0.Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": str(folder / "vectors"),
                    "collection_name": "memories",
                    "embedding_model_dims": DIMS,
                },
            },
            "embedder": {"provider": "openai", "config": {**model, "model": "words", "embedding_dims": DIMS}},
            "llm": {"provider": "openai", "config": model},
            "history_db_path": str(folder / "history.db"),
        }
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), platform(memory))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201 - how its starter learns of it
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
