"""From grants to what a store can put into a query: which tags are allowed, and which veto."""

from collections.abc import Collection
from dataclasses import dataclass

from corbits_memory.access.authorize import Authorizer, AuthzResult
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
        rules = list(self.authorizer.rules_for(SEARCH))
        named = {rule.resource for rule in rules if not has_wildcard(rule.resource)}
        wide = [rule for rule in rules if has_wildcard(rule.resource)]
        everything = any(_covers_all(rule) for rule in wide)
        asked = sorted({rule.resource for rule in wide if (rule.effect is not Effect.ALLOW) == everything})
        known = await known_tags(asked) if asked else ()
        judged = {tag: await self.authorizer.decide(tag, SEARCH) for tag in named.union(known)}
        return Visibility(
            principal_id=self.principal_id,
            allowed=frozenset() if everything else _tags(judged, allowed=True),
            vetoed=frozenset(tag for tag, result in judged.items() if _vetoes(result)),
            everything=everything,
            refused=_tags(judged, allowed=False) if everything else frozenset(),
        )

    async def reaches(self, action: str, tags: Collection[str]) -> bool:
        """Whether some tag allows the action and none vetoes it."""
        results = [await self.authorizer.decide(tag, action) for tag in tags]
        return any(result.allowed for result in results) and not any(map(_vetoes, results))


def _tags(judged: dict[str, AuthzResult], *, allowed: bool) -> frozenset[str]:
    return frozenset(tag for tag, result in judged.items() if result.allowed is allowed)


def _vetoes(result: AuthzResult) -> bool:
    """A deny that names the very tag hides the document, whatever its other tags allow."""
    by = result.resolved_by
    return by is not None and by.effect is Effect.DENY and not has_wildcard(by.resource)


def _covers_all(rule: GrantRule) -> bool:
    return rule.effect is Effect.ALLOW and not rule.conditions and not rule.resource.strip("*")
