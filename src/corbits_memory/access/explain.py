"""Why somebody may see a document, or not: the same judgement as visibility's, with its reasons."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from corbits_memory.access.authorize import Authorizer, MatchedGrant
from corbits_memory.access.sharing import SEARCH
from corbits_memory.access.tags import document_tag
from corbits_memory.access.visibility import vetoes
from corbits_memory.core.enums import Effect


class Reason(StrEnum):
    OWNER = "owner"
    """Its owner always sees it."""
    GRANT = "grant"
    """Some tag is allowed, and none vetoed."""
    VETO = "veto"
    """A deny on the very tag hides it, whatever other tags allow."""
    NO_GRANT = "no_grant"
    """No tag is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagExplanation:
    """What the grants say about one of the document's tags. ``decided_by`` None: no grant matches it."""

    tag: str
    decided_by: MatchedGrant | None
    vetoes: bool

    @property
    def effect(self) -> Effect | None:
        return self.decided_by.effect if self.decided_by is not None else None

    @property
    def words(self) -> str:
        if self.decided_by is None:
            return f"{self.tag}: no grant matches"
        by = self.decided_by
        done = {Effect.ALLOW: "allowed", Effect.ASK: "to be asked for", Effect.DENY: "denied"}[by.effect]
        veto = ", which hides the document" if self.vetoes else ""
        return f"{self.tag}: {done} by {by.id} ({by.action} on {by.resource}){veto}"

    def to_json(self) -> dict[str, Any]:
        by = self.decided_by
        grant = by and {
            "id": by.id,
            "resource": by.resource,
            "action": by.action,
            "effect": str(by.effect),
            "origin": str(by.origin),
            "specificity": by.specificity,
        }
        return {"tag": self.tag, "effect": self.effect, "vetoes": self.vetoes, "decidedBy": grant}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessExplanation:
    """Whether a principal sees a document, why, and what was decided for each tag in its order."""

    principal_id: str
    owner: str | None
    visible: bool
    reason: Reason
    tags: tuple[TagExplanation, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The answer for people: first the decision, then a line a tag."""
        sees = "sees" if self.visible else "does not see"
        why = {
            Reason.OWNER: "it is the owner",
            Reason.GRANT: "a grant allows one of its tags, and none is vetoed",
            Reason.VETO: "a deny names one of its tags",
            Reason.NO_GRANT: "no grant allows one of its tags",
        }[self.reason]
        return (f"{self.principal_id} {sees} the document: {why}", *(tag.words for tag in self.tags))

    def to_json(self) -> dict[str, Any]:
        return {
            "principal": self.principal_id,
            "owner": self.owner,
            "visible": self.visible,
            "reason": str(self.reason),
            "tags": [tag.to_json() for tag in self.tags],
        }


async def explain_access(
    authorizer: Authorizer, *, owner: str | None, principal_id: str, tags: Collection[str], document_id: str
) -> AccessExplanation:
    """Why ``principal_id``, whose grants ``authorizer`` holds, sees a document of ``owner`` with ``tags``."""
    judged = [await _judge(authorizer, tag) for tag in dict.fromkeys(tags)]
    # A deny by the document's own tag counts where the document doesn't carry that tag, too.
    named = await _judge(authorizer, document_tag(document_id))
    if named.vetoes and named.tag not in tags:
        judged.append(named)
    reason = _reason(judged, owned=owner is not None and owner == principal_id)
    return AccessExplanation(
        principal_id=principal_id,
        owner=owner,
        visible=reason in {Reason.OWNER, Reason.GRANT},
        reason=reason,
        tags=tuple(judged),
    )


def _reason(judged: Collection[TagExplanation], *, owned: bool) -> Reason:
    if owned:
        return Reason.OWNER
    if any(tag.vetoes for tag in judged):
        return Reason.VETO
    if any(tag.effect is Effect.ALLOW for tag in judged):
        return Reason.GRANT
    return Reason.NO_GRANT


async def _judge(authorizer: Authorizer, tag: str) -> TagExplanation:
    result = await authorizer.decide(tag, SEARCH)
    return TagExplanation(tag=tag, decided_by=result.resolved_by, vetoes=vetoes(result.resolved_by))
