"""Commands about grants, roles and tenants on a database of their own: what they print, and how they end."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.cli.run import run
from corbits_memory.config import EngineConfig
from corbits_memory.server.startup import migrate
from tests.e2e.support import one_json
from tests.support.postgres import NewDatabase

Run = Callable[..., tuple[int, str, str]]
ENG = "memory.space:eng"


@pytest.fixture(scope="module")
def module_url(new_module_database: NewDatabase) -> str:
    url = new_module_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    return url


@pytest.fixture
def corbits(module_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``corbits("grant", "list")`` in this process, on the module's migrated database."""
    monkeypatch.setenv("DATABASE_URL", module_url)
    monkeypatch.setenv("EMBED_PROVIDER", "none")

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """A tenant of the test's own."""
    name: str = request.node.name
    return name


def test_before_migrating_every_command_says_what_to_run(corbits: Run, new_database: NewDatabase) -> None:
    url = new_database()
    for words in (("grant", "list"), ("role", "list"), ("tenant", "list"), ("grant", "explain", "bob", "x")):
        code, _, errors = corbits(*words, "--database-url", url)
        assert code == 1, words
        assert "corbits-memory db migrate" in errors, words


def test_a_grant_is_given_shown_and_taken_back(corbits: Run, tenant: str) -> None:
    words = [
        "grant", "add", ENG, "--principal", "bob", "--effect", "ask", "--expires", "30d", "--by", "ann",
        "--condition", 'tool="recall"', "--condition",
        'time_window={"after": "09:00", "before": "17:00", "timezone": "UTC"}', "--tenant", tenant, "--json",
    ]  # fmt: skip
    code, out, errors = corbits(*words)
    assert code == 0, errors
    made = one_json(out)
    ends = datetime.fromisoformat(made["expiresAt"])
    assert timedelta(days=29) < ends - datetime.now(UTC) < timedelta(days=31)
    assert made["conditions"]["time_window"]["timezone"] == "UTC"
    listed = one_json(corbits("grant", "list", "--tenant", tenant, "--json")[1])
    (found,) = listed["grants"]
    assert listed["next"] is None
    assert found == {**made, "expiresAt": found["expiresAt"]}
    code, out, _ = corbits("grant", "list", "--tenant", tenant)
    heading, row = out.splitlines()
    assert heading.split()[:5] == ["id", "who", "effect", "action", "resource"]
    assert [made["id"], "bob", "ask", "search", ENG] == row.split()[:5]
    assert corbits("grant", "remove", made["id"], "--tenant", tenant)[:2] == (0, f"removed {made['id']}\n")
    code, _, errors = corbits("grant", "remove", made["id"], "--tenant", tenant)
    assert code == 1
    assert "grant list" in errors


def test_a_grant_is_replaced_by_its_id(corbits: Run, tenant: str) -> None:
    for effect in ("allow", "deny"):
        words = ("grant", "add", "memory", "add", "--principal", "bob", "--id", "g1", "--effect", effect)
        assert corbits(*words, "--tenant", tenant)[:2] == (0, "g1\n")
    (found,) = one_json(corbits("grant", "list", "--tenant", tenant, "--json")[1])["grants"]
    assert (found["effect"], found["action"]) == ("deny", "add")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("eng", "--principal", "bob"), 1, "resource must be memory"),
        ((ENG, "read", "--principal", "bob"), 1, "action must be one of"),
        ((ENG,), 1, "role_id must be given"),
        ((ENG, "--principal", "bob", "--role", "eng"), 1, "only one of them"),
        ((ENG, "--principal", "bob", "--by", "bob"), 1, "must not be the one who gives"),
        ((ENG, "--principal", "bob", "--expires", "2020-01-01"), 1, "future"),
        ((ENG, "--principal", "bob", "--expires", "soon"), 2, "--expires"),
        ((ENG, "--principal", "bob", "--effect", "maybe"), 2, "--effect"),
        ((ENG, "--principal", "bob", "--condition", "tool"), 2, "--condition"),
        ((ENG, "--principal", "bob", "--condition", "weather=1"), 1, "may only be of"),
        ((ENG, "--role", "nobody"), 1, "role add"),
        (("eng", "read", "--principal", "bob"), 1, "  action: must be one of"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(
    corbits: Run, tenant: str, words: tuple[str, ...], code: int, says: str
) -> None:
    answer = corbits("grant", "add", *words, "--tenant", tenant)
    assert answer[0] == code
    assert says in answer[2]
    assert one_json(corbits("grant", "list", "--tenant", tenant, "--json")[1])["grants"] == []


def test_lists_go_on_behind_an_id_and_take_filters(corbits: Run, tenant: str) -> None:
    here = ("--tenant", tenant)
    for number in range(3):
        corbits("grant", "add", ENG, "--principal", f"p{number}", "--id", f"g{number}", *here)
    code, out, errors = corbits("grant", "list", "--limit", 2, *here)
    assert (code, len(out.splitlines())) == (0, 3)
    assert "--after g1" in errors
    rest = one_json(corbits("grant", "list", "--after", "g1", *here, "--json")[1])
    assert [grant["id"] for grant in rest["grants"]] == ["g2"]
    by = one_json(corbits("grant", "list", "--principal", "p0", "--resource", ENG, *here, "--json")[1])
    assert [grant["id"] for grant in by["grants"]] == ["g0"]


def test_roles_are_made_given_shown_and_taken_back(corbits: Run, tenant: str) -> None:
    here = ("--tenant", tenant)
    assert corbits("role", "add", "eng", "--description", "Builds", *here)[:2] == (0, "added eng\n")
    assert corbits("role", "add", "staff", *here)[0] == 0
    assert corbits("role", "assign", "eng", "bob", *here)[:2] == (0, "assigned eng to bob\n")
    told = one_json(corbits("role", "assign", "staff", "eng", "--role", *here, "--json")[1])
    assert told == {"role": "staff", "memberRole": "eng"}
    assert one_json(corbits("role", "list", *here, "--json")[1]) == {
        "roles": [
            {"id": "eng", "description": "Builds", "principals": ["bob"], "roles": []},
            {"id": "staff", "description": None, "principals": [], "roles": ["eng"]},
        ],
        "next": None,
    }
    assert "eng    bob" in corbits("role", "list", *here)[1]
    code, _, errors = corbits("role", "assign", "eng", "staff", "--role", *here)
    assert code == 1
    assert "circle" in errors
    assert corbits("role", "unassign", "eng", "bob", *here)[0] == 0
    assert corbits("role", "unassign", "eng", "bob", *here)[0] == 1
    assert corbits("role", "unassign", "staff", "eng", "--role", *here)[0] == 0
    assert corbits("role", "remove", "eng", *here)[:2] == (0, "removed eng\n")
    assert corbits("role", "remove", "eng", *here)[0] == 1
    code, _, errors = corbits("role", "assign", "eng", "bob", *here)
    assert code == 1
    assert "role add" in errors


def test_explain_says_who_sees_a_document_and_why(corbits: Run, tenant: str) -> None:
    here = ("--tenant", tenant)
    added = one_json(
        corbits("add", "The heron.", "--principal", "ann", "--access-tag", ENG, *here, "--json")[1]
    )
    document = added["documentId"]
    code, out, _ = corbits("grant", "explain", "ann", document, *here)
    assert (code, out.splitlines()[0]) == (0, "ann sees the document: it is the owner")
    told = one_json(corbits("grant", "explain", "bob", document, *here, "--json")[1])
    assert (told["visible"], told["reason"], told["document"]) == (False, "no_grant", document)

    corbits("role", "add", "eng", *here)
    corbits("role", "assign", "eng", "bob", *here)
    corbits("grant", "add", "memory.space:*", "--role", "eng", "--id", "g1", *here)
    code, out, _ = corbits("grant", "explain", "bob", document, *here)
    assert out.splitlines() == [
        "bob sees the document: a grant allows one of its tags, and none is vetoed",
        f"  {ENG}: allowed by g1 (search on memory.space:*)",
        "  memory.owner:ann: no grant matches",
    ]
    # What it says is what search does.
    found = one_json(corbits("search", "heron", "--principal", "bob", *here, "--json")[1])
    assert [item["documentId"] for item in found["items"]] == [document]

    corbits("grant", "add", ENG, "--principal", "bob", "--effect", "deny", "--id", "g2", *here)
    told = one_json(corbits("grant", "explain", "bob", document, *here, "--json")[1])
    assert (told["visible"], told["reason"]) == (False, "veto")
    assert [tag["decidedBy"] and tag["decidedBy"]["id"] for tag in told["tags"]] == ["g2", None]
    assert one_json(corbits("search", "heron", "--principal", "bob", *here, "--json")[1])["items"] == []

    code, _, errors = corbits("grant", "explain", "bob", "kdoc_unknown", *here)
    assert code == 1
    assert "no document" in errors
    assert corbits("grant", "explain", "ann", document, "--tenant", "other")[0] == 1


def test_tenants_are_listed_with_what_they_have(corbits: Run, tenant: str) -> None:
    corbits("add", "The wren.", "--tenant", f"{tenant}-documents")
    corbits("role", "add", "eng", "--tenant", f"{tenant}-roles")
    corbits("grant", "add", ENG, "--role", "eng", "--tenant", f"{tenant}-roles")
    corbits("token", "create", "--tenant", f"{tenant}-tokens")
    spent = one_json(corbits("token", "create", "--tenant", f"{tenant}-tokens", "--json")[1])
    corbits("token", "revoke", spent["id"])
    code, out, _ = corbits("tenant", "list", "--json")
    assert code == 0
    found = {row.pop("tenant"): row for row in one_json(out)["tenants"]}
    none = {"documents": 0, "grants": 0, "roles": 0, "tokens": 0}
    assert found[f"{tenant}-documents"] == {**none, "documents": 1}
    assert found[f"{tenant}-roles"] == {**none, "grants": 1, "roles": 1}
    assert found[f"{tenant}-tokens"] == {**none, "tokens": 1}
    assert corbits("tenant", "list")[1].splitlines()[0].split() == [
        "tenant",
        "documents",
        "grants",
        "roles",
        "tokens",
    ]
