"""What is remembered of a scope is one tenant's, and is forgotten."""

import pytest

from corbits_memory.engine.search import crowded
from corbits_memory.engine.search.crowded import SECONDS, CrowdedScopes

SCOPE = '{"principal": "ann"}'


def test_it_is_known_for_a_while_and_of_one_tenant() -> None:
    now = 100.0
    scopes = CrowdedScopes(lambda: now)
    assert not scopes.rows("acme", SCOPE)
    scopes.note("acme", SCOPE, 5_000)
    assert scopes.rows("acme", SCOPE) == 5_000
    assert not scopes.rows("other", SCOPE)
    assert not scopes.rows("acme", '{"principal": "bob"}')
    now += SECONDS - 0.1
    assert scopes.rows("acme", SCOPE) == 5_000
    now += 0.1
    assert not scopes.rows("acme", SCOPE)


def test_names_do_not_run_together() -> None:
    scopes = CrowdedScopes(lambda: 0.0)
    scopes.note("a", "bc", 5_000)
    assert not scopes.rows("ab", "c")


def test_it_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowded, "REMEMBERED", 3)
    scopes = CrowdedScopes(lambda: 0.0)
    for number in range(10):
        scopes.note("acme", str(number), 5_000)
        assert scopes.rows("acme", str(number)) == 5_000
        assert sum(scopes.rows("acme", str(n)) > 0 for n in range(10)) <= 3
