"""Namespaces and keys as references of documents: no two of them alike, and none that begins like a neighbour's."""

import re
from urllib.parse import quote, unquote

from corbits_memory.core.limits import ATTRIBUTES, EXTERNAL_REF_CHARS
from corbits_memory.errors import InvalidInputError

Namespace = tuple[str, ...]

LABELS = ATTRIBUTES - 4
"""Of one namespace: each level is an attribute, and a document has so many."""
AFTER_ITEMS = ";"
"""The character behind the one that items of a namespace begin with."""

# Separators, and what a reference may not hold or might lose at its ends. Spelt out: what the interpreter takes for a
# space differs between releases, and a name must not.
_ESCAPED = re.compile(
    r"[%/:\x00-\x20\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)


def prefix_of(principal: str, namespace: Namespace) -> str:
    """How the references of all items in and below a namespace begin. Raises ``InvalidInputError``."""
    if len(namespace) > LABELS:
        raise InvalidInputError(f"a namespace may have at most {LABELS} labels")
    return _short_enough("".join(f"{_escape(label)}/" for label in (principal, *namespace)))


def reference_of(principal: str, namespace: Namespace, key: str) -> str:
    """The reference of an item. Raises ``InvalidInputError`` for one that is too long, or an empty key."""
    if not key:
        raise InvalidInputError("a key must not be empty")
    return _short_enough(f"{prefix_of(principal, namespace)}:{_escape(key)}")


def read_reference(reference: str) -> tuple[Namespace, str]:
    """Namespace and key of a reference."""
    path, _, key = reference.rpartition("/:")
    _, *labels = path.split("/")
    return tuple(map(_unescape, labels)), _unescape(key)


def behind_items(reference: str) -> str:
    """Behind all items that stand in the same namespace as this one, and before those of any other."""
    return f"{reference.rpartition('/:')[0]}/{AFTER_ITEMS}"


def _escape(label: str) -> str:
    return _ESCAPED.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), label)


def _unescape(label: str) -> str:
    return unquote(label, errors="surrogatepass")


def _short_enough(reference: str) -> str:
    if len(reference) > EXTERNAL_REF_CHARS:
        raise InvalidInputError(
            f"namespace and key are too long: with the principal's name and escapes they may take "
            f"{EXTERNAL_REF_CHARS:,} characters"
        )
    return reference
