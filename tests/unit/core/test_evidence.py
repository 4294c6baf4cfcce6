import struct

import pytest

from corbits_memory.core.authority import authority
from corbits_memory.core.enums import CreatedByKind, EvidenceLevel, Provenance
from corbits_memory.core.evidence import (
    EvidenceFloors,
    EvidenceRow,
    ItemEvidence,
    best_evidence,
    compat_evidence,
    confidence,
    default_item_evidence,
    dense_level,
)

INFERRED = (Provenance.INFERRED, CreatedByKind.AGENT)
STATED = (Provenance.STATED, CreatedByKind.HUMAN)
STATED_BY_AGENT = (Provenance.STATED, CreatedByKind.AGENT)


def row(
    authority: float = 0.9,
    supports: float = 0,
    ts: float = 0.0,
    rerank: float | None = None,
    who: tuple[Provenance, CreatedByKind] | None = None,
) -> EvidenceRow:
    return EvidenceRow(
        authority=authority,
        supports=supports,
        ts_rank=ts,
        rerank_score=rerank,
        provenance=who[0] if who else None,
        created_by_kind=who[1] if who else None,
    )


@pytest.mark.parametrize(
    ("hits", "lexical", "expected"),
    [
        ([], [row(ts=0.9, supports=9)], "none"),
        ([row()], [row(ts=0.01, supports=2)], "weak"),
        ([row(rerank=0.85, supports=2)], [row(ts=0.001)], "strong"),
        ([row(rerank=0.85, supports=2)], [], "strong"),
        ([row(rerank=0.2, supports=5)], [], "weak"),
        ([row(authority=0.1, rerank=0.9, supports=5)], [], "weak"),
        ([row(rerank=0.9, who=INFERRED)], [], "weak"),
        ([row(rerank=0.85, who=STATED)], [], "strong"),
        ([row(supports=2)], [row(ts=0.9, supports=2)], "strong"),
        # floors are inclusive
        ([row(rerank=0.6, authority=0.3, who=STATED)], [], "strong"),
        ([row(rerank=0.599, who=STATED)], [], "weak"),
        ([row()], [row(ts=0.05, authority=0.3, supports=2)], "strong"),
        ([row()], [row(ts=0.0499, supports=2)], "weak"),
        ([row()], [row(ts=0.9, supports=1.9)], "weak"),
        # only the first hit and the best lexical row count; the first of equals
        ([row(rerank=0.1), row(rerank=0.9, who=STATED)], [], "weak"),
        ([row()], [row(ts=0.2, supports=2), row(ts=0.3)], "weak"),
        ([row()], [row(ts=0.3, supports=2), row(ts=0.3)], "strong"),
        # a stated text of an agent needs support
        ([row(rerank=0.9, who=STATED_BY_AGENT)], [], "weak"),
    ],
)
def test_compat_table(hits: list[EvidenceRow], lexical: list[EvidenceRow], expected: str) -> None:
    assert compat_evidence(hits=hits, lexical=lexical) == expected


def test_an_agents_claim_passes_the_authority_floor_after_storage_in_four_bytes() -> None:
    (stored,) = struct.unpack("f", struct.pack("f", authority(CreatedByKind.AGENT)))
    assert compat_evidence(hits=[row()], lexical=[row(authority=stored, ts=0.9, supports=2)]) == "strong"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (ItemEvidence(lexical=0.6), "strong"),
        (ItemEvidence(lexical=0.599), "weak"),
        (ItemEvidence(lexical=0.12), "weak"),
        (ItemEvidence(lexical=0.119), "none"),
        (ItemEvidence(lexical=0.119, dense=0.31), "weak"),
        (ItemEvidence(lexical=0.119, dense=0.3), "none"),
        (ItemEvidence(dense=0.5), "weak"),
        (ItemEvidence(dense=0.499), "none"),
        (ItemEvidence(dense=0.8), "strong"),
        (ItemEvidence(dense=0.799), "weak"),
        (ItemEvidence(lexical=0.36, dense=0.5), "strong"),
        (ItemEvidence(lexical=0.34, dense=0.5), "weak"),
        (ItemEvidence(lexical=1.0, authority=0.29), "weak"),
        (ItemEvidence(lexical=1.0, authority=0.3), "strong"),
        (ItemEvidence(lexical=1.0, authority=0.42, contradicts=4), "weak"),
        (ItemEvidence(lexical=1.0, authority=0.42, contradicts=4, supports=4), "strong"),
        (ItemEvidence(), "none"),
    ],
)
def test_evidence_of_one_item(item: ItemEvidence, expected: str) -> None:
    assert default_item_evidence(item) == expected


def test_an_answer_is_as_good_as_its_best_item() -> None:
    none, weak, strong = EvidenceLevel.NONE, EvidenceLevel.WEAK, EvidenceLevel.STRONG
    assert best_evidence([none, weak, strong]) is strong
    assert best_evidence([weak, none]) is weak
    assert best_evidence([none]) is none
    assert best_evidence([]) is none


def test_confidence_adds_meaning_to_words() -> None:
    assert confidence(ItemEvidence(lexical=0.4, dense=0.5)) == pytest.approx(0.7)
    assert confidence(ItemEvidence()) == 0


def test_floors_are_the_operators() -> None:
    assert default_item_evidence(ItemEvidence(lexical=0.3), EvidenceFloors(strong_lexical=0.3)) == "strong"


def test_dense_level_is_absolute() -> None:
    assert dense_level(None, mean=0.8, sd=0.02) is None
    assert dense_level(0.8, mean=0.8, sd=0.02) == 0
    assert dense_level(0.87, mean=0.8, sd=0.02) == pytest.approx(0.5)
    assert dense_level(0.95, mean=0.8, sd=0.02) == 1
    assert dense_level(0.9, mean=0.8, sd=0.0) == 1
