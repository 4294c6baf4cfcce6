"""The data sets: documents to add and questions whose answers are known.

They are not part of the repository. They lie beside it in ``../shared/data``, or where
``CORBITS_MEMORY_BENCH_DATA`` says; its README describes them.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from corbits_memory.ports import NewDocument, TextPart

VARIABLE = "CORBITS_MEMORY_BENCH_DATA"
REPOSITORY = Path(__file__).resolve().parent.parent


class DataMissingError(Exception):
    """The data sets are not here; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: str
    text: str
    relevant: frozenset[str]
    """External references of the documents that answer."""
    category: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Documents of one tenant, and the questions asked of it."""

    name: str
    language: str
    """Text-search configuration of its documents."""
    documents: tuple[NewDocument, ...]
    questions: tuple[Question, ...]


def data_folder() -> Path:
    """Where the data sets are. Raises :class:`DataMissingError`."""
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        raise DataMissingError(
            f"The benchmark data is not in {'the folder that ' + VARIABLE + ' names' if named else '../shared/data'}: "
            f"set {VARIABLE} to a folder with locomo-dev, cranfield and xquad-en."
        )
    return folder


def load_conversations(limit: int | None = None) -> list[DataSet]:
    """LoCoMo-dev, one data set a conversation."""
    folder = _subfolder("locomo-dev")
    names = sorted(path.name.removesuffix(".documents.jsonl") for path in folder.glob("*.documents.jsonl"))
    return [
        DataSet(
            name=name,
            language="english",
            documents=_documents(folder / f"{name}.documents.jsonl", "message", "english"),
            questions=_questions(folder / f"{name}.queries.jsonl"),
        )
        for name in names[:limit]
    ]


def load_collection(name: str, language: str) -> DataSet:
    """Cranfield or one language of XQuAD."""
    folder = _subfolder(name)
    kind = "abstract" if name == "cranfield" else "article"
    return DataSet(
        name=name,
        language=language,
        documents=_documents(folder / "documents.jsonl", kind, language),
        questions=_questions(folder / "queries.jsonl"),
    )


def _subfolder(name: str) -> Path:
    folder = data_folder() / name
    if not folder.is_dir():
        raise DataMissingError(f"The data set {name} is missing from the benchmark data; see {VARIABLE}.")
    return folder


def _documents(path: Path, kind: str, language: str) -> tuple[NewDocument, ...]:
    return tuple(
        NewDocument(
            title=row["title"],
            parts=(TextPart(text=row["text"]),),
            kind=kind,
            external_ref=row["external_ref"],
            language=language,
            author=row.get("author"),
            thread=row.get("thread"),
            occurred_at=datetime.fromisoformat(row["occurred_at"]) if row.get("occurred_at") else None,
        )
        for row in _rows(path)
    )


def _questions(path: Path) -> tuple[Question, ...]:
    return tuple(
        Question(
            id=row["id"],
            text=row["question"],
            relevant=frozenset(row["relevant"]),
            category=row.get("category"),
        )
        for row in _rows(path)
        if row["relevant"]
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def texts_of(documents: Iterable[NewDocument]) -> list[str]:
    """Title and text of each, as a search library would index them."""
    return [f"{document.title}\n{document.text}" for document in documents]
