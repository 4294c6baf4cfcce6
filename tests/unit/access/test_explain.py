"""Why a document is visible or not, in words and as JSON."""

import json

import pytest

from corbits_memory.access.explain import AccessExplanation, Reason, explain_access
from corbits_memory.ports import GrantRule
from tests.unit.access.support import P, allow, ask, authorizer, deny

ENG, DOC = "memory.space:eng", "memory.doc:kdoc_1"
TAGS = ("memory.owner:ann", ENG, DOC)


async def explain(*rules: GrantRule, owner: str | None = "ann") -> AccessExplanation:
    return await explain_access(authorizer(*rules), owner=owner, principal_id=P, tags=TAGS, document_id="9")


@pytest.mark.parametrize(
    ("rules", "owner", "visible", "reason"),
    [
        ([], P, True, Reason.OWNER),
        ([deny(DOC)], P, True, Reason.OWNER),
        ([], "ann", False, Reason.NO_GRANT),
        ([], None, False, Reason.NO_GRANT),
        ([ask(ENG)], "ann", False, Reason.NO_GRANT),
        ([allow(ENG, "add")], "ann", False, Reason.NO_GRANT),
        ([deny("memory*")], "ann", False, Reason.NO_GRANT),
        ([allow(ENG)], "ann", True, Reason.GRANT),
        ([allow("memory.space:*"), deny("memory*")], "ann", True, Reason.GRANT),
        ([allow(ENG), deny(DOC)], "ann", False, Reason.VETO),
        ([deny(DOC)], "ann", False, Reason.VETO),
    ],
)
async def test_the_decision_and_its_reason(
    rules: list[GrantRule], owner: str | None, visible: bool, reason: Reason
) -> None:
    explained = await explain(*rules, owner=owner)
    assert (explained.visible, explained.reason) == (visible, reason)


async def test_the_words_name_the_deciding_grant_of_each_tag() -> None:
    explained = await explain(allow("memory.space:*", grant_id="g1"), deny(DOC, grant_id="g2"))
    assert explained.words == (
        "bob does not see the document: a deny names one of its tags",
        "memory.owner:ann: no grant matches",
        "memory.space:eng: allowed by g1 (search on memory.space:*)",
        "memory.doc:kdoc_1: denied by g2 (search on memory.doc:kdoc_1), which hides the document",
    )
    asked = await explain(ask(ENG, grant_id="g3"))
    assert asked.words[0] == "bob does not see the document: no grant allows one of its tags"
    assert asked.words[2] == "memory.space:eng: to be asked for by g3 (search on memory.space:eng)"
    assert (await explain(owner=P)).words[0] == "bob sees the document: it is the owner"
    assert "none is vetoed" in (await explain(allow(ENG))).words[0]


async def test_the_json_says_the_same() -> None:
    told = (await explain(allow("memory.space:*", grant_id="g1"))).to_json()
    assert json.loads(json.dumps(told)) == {
        "principal": "bob",
        "owner": "ann",
        "visible": True,
        "reason": "grant",
        "tags": [
            {"tag": "memory.owner:ann", "effect": None, "vetoes": False, "decidedBy": None},
            {
                "tag": ENG,
                "effect": "allow",
                "vetoes": False,
                "decidedBy": {
                    "id": "g1",
                    "resource": "memory.space:*",
                    "action": "search",
                    "effect": "allow",
                    "origin": "system",
                    "specificity": 1_019,
                },
            },
            {"tag": DOC, "effect": None, "vetoes": False, "decidedBy": None},
        ],
    }
