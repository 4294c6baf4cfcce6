"""Words of any script: what the lexical channel indexes, and how a query is read."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

# Scripts written without spaces between words. Digits and currency signs of these blocks are left out.
_UNSEGMENTED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecd\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109f"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana and marks
    "\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_UNSEGMENTED_RUN = re.compile(f"[{_UNSEGMENTED}]+")
_HANGUL = "\uac00-\ud7a3"
_SCRIPT_RUN = re.compile(f"(?P<unsegmented>[{_UNSEGMENTED}]+)|(?P<hangul>[{_HANGUL}]+)")

# A code, version, path, address: parts of letters and digits held together by single signs. The look-behind
# and the possessive part keep the scan linear on a very long word.
_COMPOUND = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]++(?:(?:::|[-_./:@])[A-Za-z0-9]++)+(?![A-Za-z0-9])")
_INNER_SIGN = re.compile(r"[-_./:@](?=[A-Za-z0-9:])(?<=[A-Za-z0-9].)")
"""Without one there is no compound: found much faster than that, the more so as it begins with the sign."""
_ASCII_BLANKS = bytes(code if chr(code).isalnum() else 32 for code in range(128)) + b" " * 128
_SIGNED = re.compile(r"(?<![A-Za-z0-9])([A-Za-z])(\+\+|#)(?![A-Za-z0-9+#])")
_JOINED_CHARS = 64
_SIGN_NAMES = {"++": "plusplus", "#": "sharp"}

_QUERY_PIECE = re.compile(
    r'(?P<minus>(?<!\S)-)?(?:"(?P<straight>[^"]*)"|“(?P<curly>[^“”]*)”|„(?P<low>[^„“”]*)[“”]|«(?P<angle>[^«»]*)»)'
    r"|(?<!\S)-(?P<word>\w[^\s\"]*)"
)
_NUMBER = re.compile(r"[\d.,:]+%?")

_QUESTION_MARKS = frozenset("?？؟⸮⁇⁈⁉፧꘏\u037e")
_SENTENCE_ENDS = _QUESTION_MARKS | frozenset("!！.。…")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    """A query in web-search syntax, taken apart."""

    text: str
    """What is asked: the query without quote marks and without what is excluded."""
    phrases: tuple[str, ...] = ()
    """What stood in quotes: has to occur as it is."""
    excluded: tuple[str, ...] = ()
    """Words and phrases after a minus: must not occur."""
    identifiers: tuple[str, ...] = ()
    """Codes, names with underscores, addresses, versions, as typed."""


class _Separators(dict[int, str | None]):
    """A translation table that fills itself: letters, marks and digits stay, the rest is a space."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        category = unicodedata.category(char)
        kept: str | None = " "
        if category[0] in "LMN":
            kept = char
        elif category == "Cf" and char != "\u200b":
            kept = None  # joiners and soft hyphens stand inside words; a zero-width space stands between
        self[code] = kept
        return kept


def normalise(text: str) -> str:
    """Text as a full-text parser of space-separated words can read it.

    NFKC; punctuation and symbols become spaces (apostrophes too, as in Postgres's own parser); a run of an
    unsegmented script becomes its overlapping character bigrams; a Hangul word is followed by its bigrams, so
    that a stem is found under any particle; an identifier is followed by its parts joined into one word
    (``CL-5868`` gives ``CL 5868 CLx5868``). Rows and queries go through the same function.
    """
    text = _named(text)
    return " ".join(_ascii_words(text)) if text.isascii() else _spaced(text)


def words(text: str) -> list[str]:
    """Lower-cased words of the normalised text, in order."""
    text = _named(text)
    return _ascii_words(text.lower()) if text.isascii() else _spaced(text).lower().split()


def _named(text: str) -> str:
    """NFKC, with each identifier followed by its parts as one word, and signs that are names spelt out."""
    text = unicodedata.normalize("NFKC", text)
    if _INNER_SIGN.search(text):
        text = _COMPOUND.sub(_with_joined, text)
    if "+" in text or "#" in text:
        text = _SIGNED.sub(_with_sign_name, text)
    return text


def _spaced(text: str) -> str:
    plain = text.translate(_Separators())
    return " ".join(_SCRIPT_RUN.sub(_with_bigrams, plain).split())


def word_count(text: str) -> int:
    """About how many words a reader would count; two characters of an unsegmented script are one."""
    if text.isascii():
        return len(_ascii_words(text))
    plain = unicodedata.normalize("NFKC", text).translate(_Separators())
    pairs = sum(max(1, len(run) // 2) for run in _UNSEGMENTED_RUN.findall(plain))
    return pairs + len(_UNSEGMENTED_RUN.sub(" ", plain).split())


def _ascii_words(text: str) -> list[str]:
    # Many times faster than a pattern.
    return text.encode().translate(_ASCII_BLANKS).decode().split()


def is_unsegmented(text: str) -> bool:
    """True for text of a script without spaces, or of Hangul, whose particles stick to the word."""
    return _SCRIPT_RUN.search(text) is not None


def identifiers(text: str) -> tuple[str, ...]:
    """Identifiers of a text in order, each once."""
    found = [match.group() for match in _COMPOUND.finditer(text) if _is_identifier(match.group())]
    found += [match.group() for match in _SIGNED.finditer(text)]
    return tuple(dict.fromkeys(found))


def ends_with_question(text: str) -> bool:
    """True when the last sentence is a question; closing quotes, brackets and emoji after it don't matter."""
    for char in reversed(text[-64:]):
        if char in _QUESTION_MARKS:
            return True
        if char in _SENTENCE_ENDS:
            if char not in "!！":
                return False
        elif unicodedata.category(char)[0] in "LN":
            return False
    return False


def parse_query(query: str) -> ParsedQuery:
    """Read "quotes" and -minus. A minus before a number or inside a word is no exclusion."""
    phrases: list[str] = []
    excluded: list[str] = []

    def take(match: re.Match[str]) -> str:
        word = match["word"]
        if word is not None:
            if _NUMBER.fullmatch(word):
                return match.group()
            excluded.append(word)
            return " "
        phrase = next(
            group for name in ("straight", "curly", "low", "angle") if (group := match[name]) is not None
        )
        phrase = " ".join(phrase.split())
        if not phrase:
            return " "
        if match["minus"]:
            excluded.append(phrase)
            return " "
        phrases.append(phrase)
        return f" {phrase} "

    text = " ".join(_QUERY_PIECE.sub(take, query).split())
    return ParsedQuery(
        text=text,
        phrases=tuple(dict.fromkeys(phrases)),
        excluded=tuple(dict.fromkeys(excluded)),
        identifiers=identifiers(text),
    )


def _with_joined(match: re.Match[str]) -> str:
    token = match.group()
    if len(token) > _JOINED_CHARS or not _is_identifier(token):
        return token
    parts = re.split(r"[^A-Za-z0-9]+", token)
    if len(parts[0]) > 1 and parts[0][0] in "vV" and parts[0][1:].isdigit():
        parts[0] = parts[0][1:]  # v1.2 and 1.2 are the same version
    return f"{' '.join(parts)} {'x'.join(parts)}"


def _is_identifier(token: str) -> bool:
    """Hyphenated and slashed words are prose; digits, ``_``, ``@``, ``::`` and inner dots are not."""
    return (
        any(char.isdigit() for char in token)
        or any(sign in token for sign in ("_", "@", "::"))
        or re.search(r"[A-Za-z]\.[a-z]", token) is not None
    )


def _with_sign_name(match: re.Match[str]) -> str:
    return f"{match[1]} {match[1]}x{_SIGN_NAMES[match[2]]}"


def _with_bigrams(match: re.Match[str]) -> str:
    hangul = match["hangul"]
    if hangul is not None:
        pairs = [hangul[index : index + 2] for index in range(len(hangul) - 1)] if len(hangul) > 2 else []
        return f" {' '.join([hangul, *pairs])} "
    clusters = _clusters(match["unsegmented"])
    if len(clusters) == 1:
        return f" {clusters[0]} "
    return f" {' '.join(map(''.join, pairwise(clusters)))} "


def _clusters(run: str) -> list[str]:
    """Characters with the marks that sit on them."""
    clusters: list[str] = []
    for char in run:
        if clusters and unicodedata.category(char)[0] == "M":
            clusters[-1] += char
        else:
            clusters.append(char)
    return clusters
