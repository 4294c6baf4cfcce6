"""The OpenAPI document tells of every route, and the routes keep to it."""

import json
import re
import subprocess
import sys
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core import enums, limits
from corbits_memory.http import memory_app, memory_openapi
from corbits_memory.http.calls import Operation
from corbits_memory.http.openapi import JSON
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.plane import Memory
from tests.http.conftest import identity
from tests.http.transforming import ReplayingStore

PREFIX = "/api/tenants/{tenant_id}/memory"


async def test_the_app_serves_its_document(http: httpx2.AsyncClient) -> None:
    answer = await http.get("http://memory.test/openapi.json", headers={"authorization": ""})
    assert answer.json() == memory_openapi()
    assert answer.headers["x-request-id"]


def test_every_route_is_described() -> None:
    document = memory_openapi()
    assert document["openapi"] == "3.1.0"
    described = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation["tags"] == ["memory"]
    }
    assert described == {(operation.method, PREFIX + operation.path) for operation in OPERATIONS}
    assert len(described) == len(OPERATIONS)


def test_the_document_names_every_field_by_its_json_name() -> None:
    schemas = memory_openapi()["components"]["schemas"]
    assert {"includeEvidence", "includeDeprecated", "entity_ids", "max_per_document"} <= set(
        schemas["SearchRequest"]["properties"]
    )
    assert {"documentId", "versionId", "grantsMaterialized"} <= {
        *schemas["AddResponse"]["properties"],
        *schemas["ShareReceiptResponse"]["properties"],
    }
    assert set(schemas["CitationResponse"]["properties"]) == {"adapter", "external_ref", "open"}
    assert schemas["Provenance"]["enum"] == list(enums.Provenance)
    assert schemas["AddRequest"]["properties"]["title"]["maxLength"] == limits.TITLE_CHARS
    assert "null" not in json.dumps(schemas["AddResponse"]["required"])


@pytest.mark.parametrize("blank", ["", " ", "\x1c", "\x1d\x1f", "\x85", "\u2003", "\t\n"])
def test_what_the_plane_takes_for_blank_the_document_does_too(blank: str) -> None:
    schemas = memory_openapi()["components"]["schemas"]
    for field in ("title", "text"):
        assert not re.search(schemas["AddRequest"]["properties"][field]["pattern"], blank)
    assert not re.search(schemas["SearchRequest"]["anyOf"][0]["properties"]["query"]["pattern"], blank)


def test_a_convertor_of_the_prefix_is_no_part_of_the_path() -> None:
    document = memory_openapi(prefix="/t/{tenant_id:path}/m/")
    assert "/t/{tenant_id}/m/add" in document["paths"]


def test_mounting_imports_no_fastapi_and_no_database_driver() -> None:
    code = "import sys, corbits_memory.http; print([m for m in ('fastapi', 'psycopg', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- property: whatever the document allows or forbids, the routes answer as it says ------------------


VALID, BROKEN = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
# A batch answers 200 with an error in the place of a broken item.
KNOWN = {
    "tenant_id": "acme",
    "document_id": "fake_doc_1",
    "version_id": "fake_ver_1",
    "subscription_id": "msub_1",
    "config_id": "tcfg_1",
    "other_id": "tcfg_1",
    "run_id": "trun_1",
    "generation": "trun_1",
}
# Not any bytes are a file that can be read. A number that the feed has not reached is refused, and so are some URLs,
# the future, sizes that contradict each other, and a time before another, which no schema can say; an empty parameter
# counts as absent.
EXCLUDED = {
    "memory_search": ["positive_data_acceptance"],
    "memory_context": ["positive_data_acceptance"],
    "memory_list": ["positive_data_acceptance", "negative_data_rejection"],
    "memory_add_batch": ["negative_data_rejection"],
    "memory_add_file": ["positive_data_acceptance"],
    "memory_feed": ["positive_data_acceptance"],
    "memory_subscribe": ["positive_data_acceptance"],
    "memory_transform_create": ["positive_data_acceptance"],
    "memory_transform_run": ["positive_data_acceptance"],
}


@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        pytest.param(operation, mode, id=f"{operation.id}-{mode.value}")
        for operation in OPERATIONS
        for mode in (VALID, BROKEN)
        # What takes nothing can't be given anything broken; a stream is no answer that ends.
        if (mode is VALID or operation.request or operation.query) and operation.media_type == JSON
    ],
)
def test_the_routes_keep_to_the_document(operation: Operation, mode: GenerationMode) -> None:
    app = memory_app(Memory(ReplayingStore(), grant_store=InMemoryGrantStore()), identity=identity)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    cases = schema[PREFIX + operation.path][operation.method].as_strategy(generation_mode=mode)
    excluded = CHECKS.get_by_names(EXCLUDED.get(operation.id, []))

    @given(case=cases)
    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def keeps(case: Any) -> None:
        case.path_parameters = {name: KNOWN[name] for name in re.findall(r"{(\w+)}", case.path)}
        case.call_and_validate(headers={"authorization": "Bearer ann"}, excluded_checks=excluded)

    keeps()
