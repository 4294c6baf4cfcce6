"""Grants that sharing writes, and what may show a claim to more readers."""

import re
from datetime import UTC, datetime, timedelta, timezone

from corbits_memory.access.rules import check_grant
from corbits_memory.access.sharing import (
    ShareGrants,
    build_share_grants,
    share_grant_id,
    share_widen_receipt,
    split_audience_widen,
)
from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.ports import GrantRule
from tests.unit.access.support import NOW


def share(*principals: str) -> ShareGrants:
    return ShareGrants(
        tenant_id="acme",
        document_id="kdoc_1",
        source_version_id="kver_1",
        shared_by="ann",
        principals=principals,
    )


def test_each_peer_gets_one_grant_on_the_documents_own_tag() -> None:
    (grant,) = build_share_grants(share("bob"))
    assert grant == GrantRule(
        id=share_grant_id("acme", "kdoc_1", "bob"),
        tenant_id="acme",
        principal_id="bob",
        resource="memory.doc:kdoc_1",
        action="search",
        effect=Effect.ALLOW,
        origin=GrantOrigin.SYSTEM,
        conditions={
            "memoryShare": {
                "sharedBy": "ann",
                "sourceVersionId": "kver_1",
                "documentId": "kdoc_1",
                "tenantId": "acme",
            }
        },
        created_by="ann",
    )
    check_grant(grant, now=NOW)


def test_blanks_repeats_and_the_sharer_get_none() -> None:
    assert [
        grant.principal_id for grant in build_share_grants(share(" bob ", "", " ", "ann", "bob", "cy"))
    ] == [
        "bob",
        "cy",
    ]
    assert build_share_grants(share("ann", " ")) == []


def test_a_grants_id_follows_from_tenant_document_and_peer() -> None:
    first = share_grant_id("acme", "kdoc_1", "bob")
    assert re.fullmatch(r"mgrt_[0-9A-Za-z]{22}", first)
    assert first == share_grant_id("acme", "kdoc_1", "bob")
    others = {
        share_grant_id("globex", "kdoc_1", "bob"),
        share_grant_id("acme", "kdoc_2", "bob"),
        share_grant_id("acme", "kdoc_1", "cy"),
        share_grant_id("acmek", "doc_1", "bob"),
    }
    assert len(others | {first}) == 5


def test_widening_is_split_in_the_order_proposed() -> None:
    source = {"memory.owner:ann", "memory.space:eng"}
    proposed = ["memory.tenant:acme", "memory.space:eng", "memory.space:ops", "memory.space:eng"]
    assert split_audience_widen(source, proposed) == (
        ("memory.space:eng",),
        ("memory.tenant:acme", "memory.space:ops"),
    )
    assert split_audience_widen(source, []) == ((), ())


def test_an_approval_is_kept_with_its_moment_in_utc() -> None:
    moment = datetime(2026, 5, 7, 14, 30, 15, 123_999, tzinfo=timezone(timedelta(hours=2)))
    assert share_widen_receipt(
        approved_by="ann", tags=("a:b",), source_version_id="kver_1", approved_at=moment
    ) == {
        "approvedBy": "ann",
        "approvedAt": "2026-05-07T12:30:15.123Z",
        "tags": ["a:b"],
        "sourceVersionId": "kver_1",
    }
    assert moment.astimezone(UTC).hour == 12
