"""From grants to what a store can put into a query: which tags are allowed, and which veto."""

from collections.abc import Collection
from dataclasses import dataclass

from corbits_memory.access.authorize import Authorizer, MatchedGrant
from corbits_memory.access.patterns import has_wildcard
from corbits_memory.core.enums import Effect
from corbits_memory.ports import GrantRule, KnownTags, Visibility

SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedAccess:
    """One caller's grants for the time of one request: :class:`~corbits_memory.ports.Access`.

    ``authorizer`` is the only judge, asked once a distinct tag.
    """

    principal_id: str
    authorizer: Authorizer

    async def visibility(self, known_tags: KnownTags) -> Visibility:
        """Exact, not an estimate: each tag that a document could be seen by is judged.

        Grants without a wildcard name their tags themselves. For those with one, the tags in use are looked
        up; beside an unconditional grant on everything only those that something else may refuse.
        """
        rules = self.authorizer.rules_for(SEARCH)
        named = {rule.resource for rule in rules if not has_wildcard(rule.resource)}
        wide = [rule for rule in rules if has_wildcard(rule.resource)]
        everything = any(_covers_all(rule) for rule in wide)
        asked = sorted({rule.resource for rule in wide if (rule.effect is not Effect.ALLOW) == everything})
        known = await known_tags(asked) if asked else ()
        allowed: set[str] = set()
        refused: set[str] = set()
        vetoed: set[str] = set()
        for tag, rule in (await self.authorizer.deciding(named.union(known), SEARCH)).items():
            (allowed if rule is not None and rule.effect is Effect.ALLOW else refused).add(tag)
            if vetoes(rule):
                vetoed.add(tag)
        return Visibility(
            principal_id=self.principal_id,
            allowed=frozenset() if everything else frozenset(allowed),
            vetoed=frozenset(vetoed),
            everything=everything,
            refused=frozenset(refused) if everything else frozenset(),
        )

    async def reaches(self, action: str, tags: Collection[str]) -> bool:
        """Whether some tag allows the action and none vetoes it."""
        rules = (await self.authorizer.deciding(tags, action)).values()
        reached = any(rule is not None and rule.effect is Effect.ALLOW for rule in rules)
        return reached and not any(map(vetoes, rules))


def vetoes(rule: GrantRule | MatchedGrant | None) -> bool:
    """A deny that names the very tag hides the document, whatever its other tags allow."""
    return rule is not None and rule.effect is Effect.DENY and not has_wildcard(rule.resource)


def _covers_all(rule: GrantRule) -> bool:
    return rule.effect is Effect.ALLOW and not rule.conditions and not rule.resource.strip("*")
