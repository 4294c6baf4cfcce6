"""Exports as the others write them, small and of our own making."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOON = 1_767_268_800.5
"""2026-01-01T12:00:00.5Z."""

MEM0 = {
    "results": [
        {
            "id": "mem-1",
            "memory": "Ann swims on Fridays.",
            "hash": "0f",
            "metadata": {"topic": "sport", "tags": ["a", "b"], "score": 0.5},
            "created_at": "2025-07-01T10:00:00.000000-07:00",
            "updated_at": None,
            "user_id": "ann",
            "run_id": "run-7",
            "categories": ["hobbies"],
            "expiration_date": "2026-12-31",
        },
        {"id": "mem-2", "memory": "Ben rows.", "user_id": "ben", "created_at": "2025-07-02T00:00:00Z"},
    ],
    "relations": [{"source": "ann", "relationship": "likes", "destination": "water"}],
}

ZEP_THREAD = {
    "thread_id": "thread-1",
    "user_id": "ann",
    "messages": [
        {
            "uuid": "msg-1",
            "role": "user",
            "name": "Ann",
            "content": "When does the ferry leave?",
            "created_at": "2026-01-01T12:00:00Z",
            "metadata": {"channel": "web"},
        },
        {"uuid": "msg-2", "role": "assistant", "content": "At noon.", "created_at": "2026-01-01T12:00:05Z"},
        {"uuid": "msg-3", "role": "user", "content": ""},
    ],
    "row_count": 3,
    "total_count": 3,
}
ZEP_GRAPH = {
    "episodes": [
        {
            "uuid": "ep-1",
            "content": '{"berth": 7}',
            "source": "json",
            "source_description": "harbour list",
            "created_at": "2026-01-02T00:00:00Z",
        }
    ],
    "edges": [
        {
            "uuid": "edge-1",
            "fact": "Ann rents berth seven.",
            "name": "RENTS",
            "created_at": "2026-01-03T00:00:00Z",
            "valid_at": "2026-01-01T00:00:00Z",
            "invalid_at": "2026-06-01T00:00:00Z",
        }
    ],
}

LANGGRAPH = {
    "items": [
        {
            "namespace": ["memories", "ann"],
            "key": "k1",
            "value": {"text": "Ann prefers the early ferry.", "importance": 3},
            "created_at": "2026-01-01T12:00:00+00:00",
            "updated_at": "2026-01-02T12:00:00+00:00",
            "score": None,
        },
        {
            "namespace": ["memories", "ann"],
            "key": "k2",
            "value": {"berths": [7, 8], "note": "two of them"},
            "created_at": "2026-01-01T12:00:00+00:00",
        },
    ]
}
LANGGRAPH_ROWS = [
    {
        "prefix": "memories.ann",
        "key": "k1",
        "value": '{"text": "Ann prefers the early ferry.", "importance": 3}',
        "created_at": "2026-01-01 12:00:00+00",
        "updated_at": "2026-01-02T12:00:00+00:00",
    }
]


def spoken(node: str, parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    """A node of a ChatGPT conversation."""
    return {
        "id": node,
        "parent": parent,
        "children": [],
        "message": {
            "id": node,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": NOON,
            "content": {"content_type": "text", "parts": list(parts)},
            "status": "finished_successfully",
            "metadata": {},
            "recipient": "all",
            **more,
        },
    }


def chatgpt(name: str = "conv-1", *, last: str | None = "n4") -> dict[str, Any]:
    """A question, its answer (made anew once), a spoken question, and what tools were told in between."""
    nodes = [
        {"id": "n0", "parent": None, "children": ["n1"], "message": None},
        spoken("sys", "n0", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        spoken("n1", "sys", "user", "When does the ferry leave?"),
        spoken("old", "n1", "assistant", "Never."),
        spoken(
            "think", "n1", "assistant", content={"content_type": "thoughts", "thoughts": [{"content": "hm"}]}
        ),
        spoken("call", "think", "assistant", "search()", recipient="web"),
        spoken("tool", "call", "tool", "results"),
        spoken("n2", "tool", "assistant", "At noon.", metadata={"model_slug": "gpt-5"}, create_time=NOON + 5),
        spoken(
            "n4",
            "n2",
            "user",
            {"content_type": "audio_transcription", "text": "And on Fridays?"},
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
            content={
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "audio_transcription", "text": "And on Fridays?"},
                    {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
                ],
            },
            create_time=None,
        ),
    ]
    return {
        "conversation_id": name,
        "id": name,
        "title": "Ferry times",
        "create_time": NOON - 10,
        "update_time": NOON + 60,
        "mapping": {str(node["id"]): node for node in nodes},
        "current_node": last,
        "is_archived": False,
    }


CLAUDE = {
    "uuid": "conv-9",
    "name": "Berths",
    "created_at": "2026-01-01T12:00:00.000000Z",
    "updated_at": "2026-01-01T12:10:00.000000Z",
    "account": {"uuid": "acc-1"},
    "chat_messages": [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "What does a berth cost?",
            "content": [{"type": "text", "text": "What does a berth cost?"}],
            "created_at": "2026-01-01T12:00:01.000000Z",
            "attachments": [
                {"file_name": "prices.txt", "file_size": 9, "extracted_content": "A berth costs seven."}
            ],
            "files": [{"file_name": "map.png"}],
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "This block is not supported on your current device yet. Seven.",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "name": "search", "input": {}},
                {"type": "text", "text": "Seven."},
            ],
            "created_at": "2026-01-01T12:00:02.000000Z",
            "attachments": [],
            "files": [],
        },
        {"uuid": "m3", "sender": "human", "text": "", "content": [], "created_at": "2026-01-01T12:00:03Z"},
    ],
}


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def pack(path: Path, files: Mapping[str, Any]) -> Path:
    """A zip file of JSON."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(name, json.dumps(value))
    return path
