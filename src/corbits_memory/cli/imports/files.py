"""Which files an import reads, and the name that each keeps for ever."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from corbits_memory.core.limits import EXTERNAL_REF_CHARS, ID_CHARS, REFERENCE_BYTES
from corbits_memory.errors import InvalidInputError
from corbits_memory.extract.kinds import SUFFIXES

ADAPTER = "file"
TEXTS = frozenset({".md", ".markdown", ".txt", ".text"})
LINES = frozenset({".jsonl", ".ndjson"})
_LINE_HASH_CHARS = 17
REF_CHARS = EXTERNAL_REF_CHARS - _LINE_HASH_CHARS
REF_BYTES = REFERENCE_BYTES - 4 * ID_CHARS - len(ADAPTER) - _LINE_HASH_CHARS
"""Fits beside a tenant's name of any length."""
EXTRACTED = frozenset(SUFFIXES) - TEXTS
"""Kinds of files that the text extractor reads."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: Path
    ref: str
    """Stable name: the folder's name and the path in it, wherever the folder lies."""
    named: bool
    """Whether it was named itself, not found in a folder."""
    leads_out: bool = False
    """Whether it was found in a folder and is a link to something outside of it."""

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()


@dataclass(frozen=True, slots=True)
class Root:
    """One path of the command line."""

    path: Path
    base: str
    is_folder: bool


def find_roots(paths: Sequence[Path], *, prefix: str = "") -> list[Root]:
    """The distinct paths, without what lies in another one of them.

    Raises ``InvalidInputError`` when two folders of one name would give their files the same names.
    """
    resolved = list(dict.fromkeys(path.resolve() for path in paths))
    folders = {path for path in resolved if path.is_dir()}
    kept = [path for path in resolved if not any(parent in folders for parent in path.parents)]
    roots = [_root(path, prefix) for path in kept]
    owners: dict[str, Path] = {}
    for root in roots:
        folder = root.path if root.is_folder else root.path.parent
        if owners.setdefault(root.base, folder) != folder:
            raise InvalidInputError(
                f"Two folders are called {root.base!r}, so their files could not be told apart: import one after "
                "the other, each with a --ref-prefix of its own."
            )
    return roots


def iter_files(roots: Sequence[Root]) -> Iterator[SourceFile]:
    """The files in a stable order. Hidden ones are passed over, links to folders are not followed.

    Whatever else has a name is yielded too: pipes, links that lead out or nowhere.
    """
    for root in roots:
        if not root.is_folder:
            yield SourceFile(root.path, stable_ref(f"{root.base}/{root.path.name}"), named=True)
            continue
        for folder, inner, names in os.walk(root.path):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(name for name in names if not name.startswith(".")):
                path = Path(folder, name)
                relative = path.relative_to(root.path).as_posix()
                yield SourceFile(
                    path,
                    stable_ref(f"{root.base}/{relative}"),
                    named=False,
                    leads_out=_leads_out(path, root.path),
                )


def _leads_out(path: Path, folder: Path) -> bool:
    # Of the names that os.walk gives as files, only the last part can be a link. realpath minds no loops.
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder)


def _root(path: Path, prefix: str) -> Root:
    is_folder = path.is_dir()
    name = path.name if is_folder else path.parent.name
    return Root(path, f"{prefix}{name}", is_folder)


def stable_ref(name: str) -> str:
    """A reference of any length, shortened with a hash where it is too long for one."""
    # A name that is no Unicode is spelt out: bytes that differ must not meet.
    name = name.encode("utf-8", "backslashreplace").decode()
    encoded = name.encode()
    if len(name) <= REF_CHARS and len(encoded) <= REF_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()
    kept = encoded[: REF_BYTES - 65].decode("utf-8", "ignore")
    return f"{kept[: REF_CHARS - 65]}#{digest}"
