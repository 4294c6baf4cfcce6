"""Strategies of installed packages: found by their entry points, and never trusted with what is stored."""

import pytest

from corbits_memory.chunkers import ChunkCaps, Piece, chunker, strategies
from corbits_memory.core.limits import CHUNK_CHARS
from corbits_memory.core.strategies import BUILT_IN
from corbits_memory.errors import ChunkerError
from corbits_memory.validation import transform_params
from tests.support.chunkers import InstallChunkers, install_chunkers

CAPS = ChunkCaps()

__all__ = ["install_chunkers"]


def test_without_packages_there_are_those_of_the_core() -> None:
    assert strategies() == tuple(BUILT_IN)
    for name in BUILT_IN:
        assert chunker(name) is BUILT_IN[name]


def test_a_package_brings_a_strategy(install_chunkers: InstallChunkers) -> None:
    install_chunkers(
        "def cut_words(parts, caps):\n"
        "    return [Piece(word, role, 1) for text, role in parts for word in text.split()]\n",
        **{"acme.words": "cut_words"},
    )
    assert strategies() == (*BUILT_IN, "acme.words")
    assert chunker("acme.words")([("one two", "user")], CAPS) == [
        Piece("one", "user", 1),
        Piece("two", "user", 1),
    ]
    params = transform_params({"chunk": {"strategy": "acme.words"}}, strategies=strategies())
    assert params.chunk.cutting.strategy == "acme.words"


def test_the_core_keeps_its_names(install_chunkers: InstallChunkers) -> None:
    install_chunkers("def cut(parts, caps):\n    return []\n", **{"token.recursive": "cut"})
    assert strategies() == tuple(BUILT_IN)
    assert chunker("token.recursive") is BUILT_IN["token.recursive"]


def test_what_is_not_installed_is_named_with_what_is(install_chunkers: InstallChunkers) -> None:
    install_chunkers("", **{"acme.words": "missing"})
    with pytest.raises(ChunkerError, match=r"No chunk strategy 'acme\.clauses' .*acme\.words"):
        chunker("acme.clauses")
    with pytest.raises(ChunkerError, match="can't be imported"):
        chunker("acme.words")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('the secret text')", r"failed \(ValueError\)"),
        ("return None", r"failed \(TypeError\)"),
        ("return []", "made no chunk"),
        ("return ['text']", "no Piece"),
        ("return [Piece('', None, 0)]", "no Piece"),
        (f"return [Piece('x' * {CHUNK_CHARS + 1}, None, 1)]", "no Piece"),
        ("return [Piece('x', 7, 1)]", "no Piece"),
        ("return [Piece('x', None, 1)] * 200_001", "more than 200,000"),
    ],
)
def test_a_strategy_that_fails_stores_nothing(
    install_chunkers: InstallChunkers, body: str, problem: str
) -> None:
    install_chunkers(f"def cut(parts, caps):\n    {body}\n", **{"acme.bad": "cut"})
    with pytest.raises(ChunkerError, match=problem) as raised:
        chunker("acme.bad")([("the secret text", None)], CAPS)
    assert "secret" not in raised.value.message


def test_limits_of_a_piece_and_its_own_count_are_not_taken_on_trust(
    install_chunkers: InstallChunkers,
) -> None:
    install_chunkers(
        f"def cut(parts, caps):\n    return [Piece('x' * {CHUNK_CHARS}, None, -5)]\n", **{"acme.long": "cut"}
    )
    (piece,) = chunker("acme.long")([("x", None)], CAPS)
    assert piece.token_count == CHUNK_CHARS // 4
