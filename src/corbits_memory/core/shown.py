"""What earlier pages of a search showed, as text that a client hands back."""

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from corbits_memory.core.limits import SEARCH_DEPTH_MAX

_VERSION = b"\x01"
_KEY_BYTES = 8
_HIT_BYTES = 3 * _KEY_BYTES
_SEAL_BYTES = 16
CURSOR_CHARS = (4 * (len(_VERSION) + _SEAL_BYTES + (SEARCH_DEPTH_MAX - 1) * _HIT_BYTES) + 2) // 3
"""The longest cursor there is: with one hit more there is no page after it."""


@dataclass(frozen=True)
class Shown:
    """Hits by short hashes of document, passage and text, in the order in which they were shown."""

    hits: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.hits)

    def and_these(self, hits: Iterable[tuple[str, str | None, str | None]]) -> "Shown":
        """With (document id, chunk id, text) of more."""
        more = (
            _key(document_id) + _key(document_id if chunk_id is None else chunk_id) + _text_key(text or "")
            for document_id, chunk_id, text in hits
        )
        return Shown((*self.hits, *more))

    def has(self, chunk_id: str) -> bool:
        return bool(self.hits) and _key(chunk_id) in self._chunks

    def of_document(self, document_id: str) -> int:
        """How many of its passages were shown."""
        return self._documents.get(_key(document_id), 0) if self.hits else 0

    def says(self, text: str) -> bool:
        """Whether one of them had this text, whatever its case and spacing; also when it is gone."""
        return bool(self.hits) and _text_key(text) in self._texts

    @cached_property
    def _documents(self) -> Mapping[bytes, int]:
        return Counter(hit[:_KEY_BYTES] for hit in self.hits)

    @cached_property
    def _chunks(self) -> frozenset[bytes]:
        return frozenset(hit[_KEY_BYTES : 2 * _KEY_BYTES] for hit in self.hits)

    @cached_property
    def _texts(self) -> frozenset[bytes]:
        return frozenset(hit[2 * _KEY_BYTES :] for hit in self.hits) - {_NO_TEXT}


NOTHING_SHOWN = Shown()
_NO_TEXT = bytes(_KEY_BYTES)


def write_cursor(shown: Shown, question: str) -> str:
    """URL-safe text. ``question`` is all that has to be the same for the next page."""
    body = _VERSION + b"".join(shown.hits)
    return base64.urlsafe_b64encode(body + _seal(body, question)).decode().rstrip("=")


def read_cursor(text: str, question: str) -> Shown | None:
    """What :func:`write_cursor` wrote for this question; None for anything else.

    The seal keeps mistakes apart, not forgers: who makes a cursor up hides hits from itself, and no more.
    """
    if len(text) > CURSOR_CHARS or not text.isascii():
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    body, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    hits = body[len(_VERSION) :]
    if body[: len(_VERSION)] != _VERSION or not hits or len(hits) % _HIT_BYTES:
        return None
    if seal != _seal(body, question):
        return None
    return Shown(tuple(hits[start : start + _HIT_BYTES] for start in range(0, len(hits), _HIT_BYTES)))


def _seal(body: bytes, question: str) -> bytes:
    asked = hashlib.blake2b(question.encode("utf-8"), digest_size=_SEAL_BYTES).digest()
    return hashlib.blake2b(asked + body, digest_size=_SEAL_BYTES).digest()


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def _text_key(text: str) -> bytes:
    plain = " ".join(text.split()).casefold()
    return _key(plain) if plain else _NO_TEXT
