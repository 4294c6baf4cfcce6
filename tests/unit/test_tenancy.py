"""The test of statements is itself tested: it finds what forgets its tenant, wherever that stands."""

import pytest

from tests.support.tenancy import unbound


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "SELECT id FROM memory.a WHERE tenant_id = %(tenant)s",
        "SELECT x.id FROM memory.a x JOIN memory.b y ON y.tenant_id = x.tenant_id WHERE x.tenant_id = $1",
        "SELECT x.id FROM memory.a x JOIN memory.b y USING (tenant_id) WHERE y.tenant_id = $1",
        "SELECT 1 FROM memory.a x WHERE (x.tenant_id, x.id) = (%(tenant)s, %(id)s)",
        "SELECT 1 FROM memory.a x WHERE tenant_id = $1 AND EXISTS (SELECT FROM memory.b WHERE tenant_id = x.tenant_id)",
        "WITH q AS (SELECT * FROM memory.a WHERE tenant_id = $1) SELECT 1 FROM q JOIN memory.b y USING (tenant_id)",
        "INSERT INTO memory.a (tenant_id, id) SELECT $1, id FROM memory.b WHERE tenant_id = $1 ON CONFLICT DO NOTHING",
        "UPDATE memory.a x SET n = 1 FROM memory.b y WHERE x.tenant_id = $1 AND y.tenant_id = $1",
        "SELECT FROM ONLY memory.a x WHERE x.tenant_id OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x",
        "SELECT 1 FROM (SELECT x.tenant_id FROM memory.a x JOIN memory.b y USING (tenant_id)) r WHERE r.tenant_id = $1",
        "SELECT 1 FROM memory.a x WHERE x.tenant_id = current_setting('memory.tenant_id', true)",
    ],
)
def test_what_names_its_tenant_is_bound(statement: str) -> None:
    assert unbound(statement) == []


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("SELECT id FROM memory.a", ["a"]),
        ("SELECT id FROM memory.a WHERE tenant_id = $1 OR id = $2", ["a"]),
        ("SELECT 1 FROM memory.a x WHERE x.tenant_id = ANY ($1)", ["a"]),
        ("SELECT x.id FROM memory.a x JOIN memory.b y ON y.id = x.id WHERE x.tenant_id = $1", ["b"]),
        ("SELECT x.id FROM memory.a x JOIN memory.b y ON y.tenant_id = x.tenant_id", ["a", "b"]),
        ("SELECT 1 FROM memory.a x WHERE x.tenant_id = x.tenant_id", ["a"]),
        (
            "SELECT 1 FROM memory.a x WHERE x.tenant_id = $1 AND EXISTS (SELECT FROM memory.b y WHERE y.id = x.id)",
            ["b"],
        ),
        ("SELECT 1 FROM memory.a x WHERE x.tenant_id = $1 AND x.id IN (SELECT id FROM memory.b)", ["b"]),
        ("SELECT (SELECT max(id) FROM memory.b) FROM memory.a WHERE tenant_id = $1", ["b"]),
        ("WITH q AS (SELECT id FROM memory.b) SELECT 1 FROM q JOIN memory.a x ON x.tenant_id = $1", ["b"]),
        ("INSERT INTO memory.a (id) VALUES ($1)", ["a"]),
        ("INSERT INTO memory.a (tenant_id, id) SELECT $1, id FROM memory.b", ["b"]),
        ("UPDATE memory.a SET n = 1 WHERE id = $1", ["a"]),
        ("DELETE FROM memory.a x USING memory.b y WHERE x.tenant_id = $1 AND y.id = x.id", ["b"]),
        ("SELECT 1 FROM memory.a WHERE tenant_id = $1 UNION ALL SELECT 1 FROM memory.b", ["b"]),
        ("SELECT 1 FROM memory.a x WHERE x.tenant_id = x.owner", ["a"]),
        ("SELECT 1 FROM (SELECT tenant_id FROM memory.a) r", ["a"]),
        ("SELECT 1 FROM (SELECT id FROM memory.a) r WHERE r.tenant_id = $1", ["a"]),
        ("SELECT 1 FROM (SELECT id AS tenant_id FROM memory.a) r WHERE r.tenant_id = $1", ["a"]),
        ("SELECT 1 FROM (SELECT x.tenant_id FROM memory.a x, memory.b) r WHERE r.tenant_id = $1", ["a", "b"]),
        (
            "SELECT 1 FROM (SELECT tenant_id FROM memory.a WHERE id IN (TABLE memory.b)) r WHERE r.tenant_id = $1",
            ["b"],
        ),
        (
            "SELECT 1 FROM memory.a x, LATERAL (SELECT 1 FROM memory.b y WHERE y.id = x.id) z WHERE x.tenant_id = $1",
            ["b"],
        ),
    ],
)
def test_what_does_not_is_found(statement: str, tables: list[str]) -> None:
    assert unbound(statement) == tables
