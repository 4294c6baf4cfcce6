import pytest

from corbits_memory.core.citation import open_target


@pytest.mark.parametrize(
    ("adapter", "external_ref", "expected"),
    [
        ("artifact", "artifact:1", ("artifact", "1")),
        ("task", "task:a:b", ("task", "a:b")),
        ("workflow_run", "workflow_run:x", ("workflow_run", "x")),
        ("mail", "mail:", ("mail", "")),
        ("artifact", "x1", ("memory", "kdoc_1")),
        ("artifact", "artifact", ("memory", "kdoc_1")),
        ("artifact", "task:1", ("memory", "kdoc_1")),
        ("http", "http:1", ("memory", "kdoc_1")),
    ],
)
def test_open_target(adapter: str, external_ref: str, expected: tuple[str, str]) -> None:
    assert open_target(adapter, external_ref, "kdoc_1") == expected
