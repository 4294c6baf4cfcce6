"""The part of a text that shows why it was found."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corbits_memory.core.limits import SNIPPET_CHARS
from corbits_memory.core.text import is_unsegmented

ELLIPSIS = "…"
_MATCHES_MAX = 2_000
_TERMS_MAX = 64
_BORDER_SHARE = 8  # a border is looked for within this fraction of the window


@dataclass(frozen=True, slots=True)
class _Match:
    start: int
    end: int
    stem: str
    weight: float


def compat_snippet(text: str) -> str:
    """The head of the trimmed text, with an ellipsis when something was cut."""
    text = text.strip()
    return text if len(text) <= SNIPPET_CHARS else text[:SNIPPET_CHARS] + ELLIPSIS


def snippet(text: str, terms: Iterable[str] | Mapping[str, float], chars: int = SNIPPET_CHARS) -> str:
    """At most ``chars`` characters of the trimmed text (ellipses not counted) where most terms meet.

    Terms are lower-cased words as :func:`corbits_memory.core.text.words` gives them, best with their idf as
    weight (without, longer words weigh more); other endings of a word match too. The 64 weightiest count.
    Cuts fall on word borders where there is one near. Without a match: the head.
    """
    text = text.strip()
    if len(text) <= chars:
        return text
    found = _matches(text, terms)
    start, end = _densest(found, chars) if found else (0, 0)
    spare = max(0, chars - (end - start))
    start = max(0, min(start - spare // 2, len(text) - chars))
    end = min(len(text), start + chars)
    start, end = _at_word_borders(text, start, end)
    head = ELLIPSIS if start > 0 else ""
    tail = ELLIPSIS if end < len(text) else ""
    return f"{head}{text[start:end].strip()}{tail}"


def _matches(text: str, terms: Iterable[str] | Mapping[str, float]) -> list[_Match]:
    weights = _stem_weights(terms)
    if not weights:
        return []
    # Longer stems first, so that the longest one wins where several start; a group for each tells which won.
    stems = sorted(weights, key=lambda stem: (-len(stem), stem))
    pattern = re.compile("|".join(f"({_stem_pattern(stem)})" for stem in stems), re.IGNORECASE)
    found: list[_Match] = []
    for match in pattern.finditer(text):
        stem = stems[(match.lastindex or 1) - 1]
        found.append(_Match(match.start(), match.end(), stem, weights[stem]))
        if len(found) == _MATCHES_MAX:
            break
    return found


def _stem_weights(terms: Iterable[str] | Mapping[str, float]) -> dict[str, float]:
    weighted = terms if isinstance(terms, Mapping) else {term: float(len(term)) for term in terms}
    heaviest = sorted(weighted.items(), key=lambda item: (-item[1], item[0]))[:_TERMS_MAX]
    weights: dict[str, float] = {}
    for term, weight in heaviest:
        if term:
            weights.setdefault(_stem(term), weight)
    return weights


def _stem(term: str) -> str:
    """A crude stem that needs no language: endings of up to three letters go, four letters stay."""
    return term if is_unsegmented(term) else term[: max(4, len(term) - 3)]


def _stem_pattern(stem: str) -> str:
    if is_unsegmented(stem):
        return re.escape(stem)
    longest_ending = 0 if len(stem) < 4 or stem[-1].isdigit() else 6
    return rf"(?<!\w){re.escape(stem)}\w{{0,{longest_ending}}}(?!\w)"


def _densest(found: list[_Match], chars: int) -> tuple[int, int]:
    """Start and end of the earliest window whose distinct terms weigh most, then with most matches."""
    counts: dict[str, int] = {}
    weight = 0.0
    best = (0.0, 0)
    span = (found[0].start, min(found[0].end, found[0].start + chars))
    first = 0
    for last, match in enumerate(found):
        counts[match.stem] = counts.get(match.stem, 0) + 1
        if counts[match.stem] == 1:
            weight += match.weight
        while first < last and match.end - found[first].start > chars:
            left = found[first]
            counts[left.stem] -= 1
            if not counts[left.stem]:
                weight -= left.weight
            first += 1
        value = (round(weight, 6), last - first + 1)
        if value > best:
            best = value
            span = (found[first].start, match.end)
    return span


def _at_word_borders(text: str, start: int, end: int) -> tuple[int, int]:
    reach = max(1, (end - start) // _BORDER_SHARE)
    if start > 0 and not text[start - 1].isspace():
        border = re.compile(r"\s").search(text, start, start + reach)
        start = border.end() if border else start
    if end < len(text) and not text[end].isspace():
        for cut in range(end - 1, max(start, end - reach), -1):
            if text[cut].isspace():
                end = cut
                break
    return start, end
