import pytest

from corbits_memory.core.diversity import MmrItem, compat_mmr, cosine, jaccard, mmr


def item(key: str, score: float, vector: list[float] | None = None, words: str = "") -> MmrItem:
    return MmrItem(key=key, score=score, vector=vector, tokens=frozenset(words.split()))


def keys(items: list[MmrItem]) -> str:
    return " ".join(found.key for found in items)


THREE = [item("best", 1.0, [1, 0, 0]), item("dup", 0.9, [0.99, 0.01, 0]), item("div", 0.5, [0, 1, 0])]


@pytest.mark.parametrize(
    ("lam", "expected"), [(0.7, "best div dup"), (0.0, "best dup div"), (0.3, "best dup div")]
)
def test_compat_larger_lambda_is_more_diverse(lam: float, expected: str) -> None:
    assert keys(compat_mmr(THREE, k=3, lam=lam)) == expected


def test_compat_items_without_vector_come_last_and_are_cut() -> None:
    items = [item("a", 1.0, [1, 0]), item("b", 0.9), item("c", 0.1, [0, 1])]
    assert keys(compat_mmr(items, k=2)) == "a c"


def test_compat_empty_vectors_are_vectors() -> None:
    items = [item("n", 0.9), item("z", 0.1, [0, 0]), item("y", 0.2, [])]
    assert keys(compat_mmr(items, k=3)) == "y z n"


def test_compat_ties_keep_the_order_and_negative_cosines_are_a_bonus() -> None:
    items = [item("a", 1.0, [1, 0]), item("b", 0.5, [0, 1]), item("c", 0.5, [0, 1]), item("d", 0.4, [-1, 0])]
    assert keys(compat_mmr(items, k=4)) == "a d b c"


@pytest.mark.parametrize(("lam", "expected"), [(1.0, "best dup div"), (0.5, "best div dup")])
def test_smaller_lambda_is_more_diverse(lam: float, expected: str) -> None:
    assert keys(mmr(THREE, k=3, lam=lam)) == expected


def test_items_without_vector_compete_by_their_words() -> None:
    items = [
        item("a", 1.0, [1, 0], "one two three"),
        item("copy", 0.9, None, "one two three"),
        item("other", 0.8, None, "four five six"),
    ]
    assert keys(mmr(items, k=3, lam=0.5)) == "a other copy"
    assert keys(mmr(items, k=2, lam=1.0)) == "a copy"


def test_cosines_below_the_models_floor_are_no_similarity() -> None:
    items = [item("a", 1.0, [1, 0]), item("b", 0.9, [0.8, 0.6]), item("c", 0.89, [0, 1])]
    assert keys(mmr(items, k=2, lam=0.5)) == "a c"
    assert keys(mmr(items, k=2, lam=0.5, cosine_floor=0.8)) == "a b"


def test_order_of_the_input_does_not_matter() -> None:
    items = [*THREE, item("twin", 0.5, [0, 1, 0])]
    assert keys(mmr(items, k=4, lam=0.5)) == keys(mmr(items[::-1], k=4, lam=0.5))


def test_nothing_in_nothing_out() -> None:
    assert mmr([], k=3, lam=0.5) == []
    assert compat_mmr([], k=3) == []
    assert mmr(THREE, k=0, lam=0.5) == []


def test_cosine_of_zero_or_unlike_vectors_is_zero() -> None:
    assert cosine([0, 0], [1, 0]) == 0
    assert cosine([], [1]) == 0
    assert cosine([3, 4], [3, 4]) == pytest.approx(1)


def test_jaccard() -> None:
    assert jaccard(frozenset("ab"), frozenset("bc")) == pytest.approx(1 / 3)
    assert jaccard(frozenset(), frozenset()) == 0
