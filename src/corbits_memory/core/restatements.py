"""Texts that say what another has said already."""

import re
from typing import NamedTuple

from corbits_memory.core.diversity import jaccard
from corbits_memory.core.text import words

NEAR_IDENTICAL = 0.9
"""Jaccard of word shingles from which two texts say the same."""
_SHINGLE_WORDS = 3
_DIGIT = re.compile(r"\d")

Shingle = tuple[str, ...]


class Signature(NamedTuple):
    """What of a text is compared with other texts."""

    text: str
    words: list[str]
    shingles: frozenset[Shingle]

    @classmethod
    def of(cls, text: str) -> "Signature":
        tokens = words(text)
        return cls(text.strip(), tokens, _shingles(tokens))

    @property
    def tokens(self) -> frozenset[str]:
        return frozenset(self.words)

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset(token for token in self.words if not token.isalpha() and _DIGIT.search(token))

    def says_the_same(self, other: "Signature", threshold: float = NEAR_IDENTICAL) -> bool:
        """Case, punctuation and spacing don't count. Texts whose numbers differ are never the same ("5 years",
        "6 years"); texts without any word are the same only when equal.
        """
        if not self.words or not other.words:
            return not self.words and not other.words and self.text == other.text
        return jaccard(self.shingles, other.shingles) >= threshold and self.numbers == other.numbers


class Said:
    """What was said so far, to find who says it again."""

    def __init__(self, threshold: float = NEAR_IDENTICAL) -> None:
        self._threshold = threshold
        self._signatures: list[Signature] = []
        self._shingles: set[Shingle] = set()

    def add(self, signature: Signature) -> None:
        self._signatures.append(signature)
        self._shingles |= signature.shingles

    def has(self, signature: Signature) -> bool:
        """Whether one of them says the same."""
        own = signature.shingles
        # Who shares so many with one of them shares as many with all: most are told apart at once.
        if own and len(own & self._shingles) / len(own) < self._threshold:
            return False
        return any(signature.says_the_same(other, self._threshold) for other in self._signatures)


def _shingles(tokens: list[str]) -> frozenset[Shingle]:
    """Every three words in a row; of fewer, all of them."""
    if len(tokens) < _SHINGLE_WORDS:
        return frozenset([tuple(tokens)] if tokens else [])
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))
