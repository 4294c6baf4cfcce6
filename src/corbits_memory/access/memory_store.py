"""A grant store in memory: for tests, and for hosts whose few grants come from a file."""

from collections import defaultdict
from collections.abc import Iterable

from corbits_memory.access.patterns import match_pattern
from corbits_memory.access.visibility import SEARCH
from corbits_memory.core.enums import Effect
from corbits_memory.ports import GrantRule


class InMemoryGrantStore:
    """Grants by tenant and id, gone with the process. Writable, revocable, versioned.

    A rule without a tenant holds in every tenant. Rules of roles reach those whom :meth:`assign` names.
    """

    def __init__(self, rules: Iterable[GrantRule] = ()) -> None:
        self._rules: dict[tuple[str | None, str], GrantRule] = {}
        self._members: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._version = 0
        for rule in rules:
            self.put_grant(rule)

    def collect_grants(self, principal_id: str, tenant_id: str) -> list[GrantRule]:
        return [
            rule
            for rule in self._rules.values()
            if rule.tenant_id in (None, tenant_id)
            and (
                rule.principal_id == principal_id
                if rule.role_id is None
                else principal_id in self._members[tenant_id, rule.role_id]
            )
        ]

    def put_grant(self, rule: GrantRule) -> None:
        self._rules[rule.tenant_id, rule.id] = rule
        self._version += 1

    def delete_grant(self, tenant_id: str, grant_id: str) -> bool:
        self._version += 1
        return self._rules.pop((tenant_id, grant_id), None) is not None

    def delete_resource_grants(self, tenant_id: str, resource: str) -> int:
        """Drop a tenant's grants on exactly this resource; how many there were."""
        gone = [key for key, rule in self._rules.items() if key[0] == tenant_id and rule.resource == resource]
        for key in gone:
            del self._rules[key]
        self._version += 1
        return len(gone)

    def readers_of(self, tenant_id: str, resource: str, limit: int) -> list[str]:
        """At most so many principals whom a grant on exactly this resource allows ``search``, by name."""
        found: set[str] = set()
        for rule in self._rules.values():
            if (
                rule.tenant_id in (None, tenant_id)
                and rule.resource == resource
                and rule.effect is Effect.ALLOW
                and match_pattern(rule.action, SEARCH)
            ):
                found.update(self._holders(rule, tenant_id))
        return sorted(found)[:limit]

    def _holders(self, rule: GrantRule, tenant_id: str) -> Iterable[str]:
        if rule.role_id is not None:
            return self._members[tenant_id, rule.role_id]
        return () if rule.principal_id is None else (rule.principal_id,)

    def assign(self, tenant_id: str, role_id: str, principal_id: str) -> None:
        """Give a principal a role."""
        self._members[tenant_id, role_id].add(principal_id)
        self._version += 1

    def unassign(self, tenant_id: str, role_id: str, principal_id: str) -> None:
        self._members[tenant_id, role_id].discard(principal_id)
        self._version += 1

    def grants_version(self, tenant_id: str) -> int:
        return self._version
