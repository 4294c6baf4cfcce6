"""``corbits-memory embed``: a tenant goes over to another model, and the one before is removed."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import corbits_memory, one_json, write_lines
from tests.engine.conftest import embed_words
from tests.models.conftest import ModelServer
from tests.support.postgres import NewDatabase


@pytest.fixture
def models() -> Any:
    with ModelServer() as server:
        server.script(embed_words)
        yield server


def test_from_one_model_to_another(new_database: NewDatabase, models: ModelServer, tmp_path: Path) -> None:
    place = {"DATABASE_URL": new_database(), "EMBED_BASE_URL": models.url}

    def call(*words: object, model: str) -> tuple[int, str, str]:
        done = corbits_memory(*map(str, words), **place, EMBED_MODEL=model)
        return done.returncode, done.stdout, done.stderr

    def told(*words: object, model: str) -> Any:
        code, out, errors = call(*words, "--json", model=model)
        assert (code, errors) == (0, ""), errors
        return one_json(out)

    assert call("db", "migrate", model="old")[0] == 0
    lines = write_lines(
        tmp_path / "n.jsonl",
        [{"title": f"N{i}", "text": f"Note {i}.", "external_ref": f"n{i}"} for i in range(150)],
    )
    assert call("import", lines, model="old")[0] == 0
    code, out, _ = call("embed", "switch", "--no-wait", model="new")
    assert (code, "150 are still to be made" in out) == (0, True)
    states = {
        one["model"]: (one["state"], one["vectors"]) for one in told("embed", "list", model="new")["models"]
    }
    assert states == {"old": ("active", 150), "new": ("taking over", 0)}
    assert told("embed", "prune", "--yes", model="new")["models"] == []
    switched = told("embed", "switch", model="new")
    assert (switched["switched"], switched["model"], switched["pendingVectors"]) == (True, "new", 0)
    code, out, _ = call("embed", "list", model="new")
    assert [line.split()[0] for line in out.splitlines()] == ["model", "new", "old"]
    assert "unused" in out.splitlines()[2]
    # With the table of the other model still there, the way back is short.
    models.requests.clear()
    back = told("embed", "switch", model="old")
    assert (back["switched"], back["model"]) == (True, "old")
    assert not [request for request in models.requests if len(request.body["input"]) > 1]
    early = told("embed", "switch", "--now", model="third")
    assert (early["switched"], early["pendingVectors"]) == (True, 150)
    assert told("embed", "backfill", model="third")["pendingVectors"] == 0
    shown = told("embed", "prune", model="third")
    assert (len(shown["models"]), len(shown["tables"]), shown["dryRun"]) == (2, 2, True)
    code, out, _ = call("embed", "prune", "--yes", model="third")
    assert (code, out.splitlines()[-1]) == (0, "2 models and 2 tables removed")
    assert [one["model"] for one in told("embed", "list", model="third")["models"]] == ["third"]
    found = told("search", "note 7", model="third")
    assert "dense_unavailable" not in found["degraded"]
    assert "dense_partial" not in found["degraded"]
