"""Places in the log that a replica must have reached."""

from corbits_memory.engine.watermarks import Watermarks


def test_a_tenant_needs_its_own_last_write() -> None:
    marks = Watermarks()
    marks.note(10, "a")
    marks.note(20, "b")
    assert [marks.needed(tenant) for tenant in ("a", "b", "c", None)] == [10, 20, 0, 0]


def test_a_place_never_goes_back() -> None:
    marks = Watermarks()
    for place in (20, 10):
        marks.note(place, "a")
        marks.note(place // 2)
    assert marks.needed("a") == 20
    assert marks.needed("b") == 10


def test_a_write_of_nobodys_counts_for_everybody() -> None:
    marks = Watermarks()
    marks.note(10, "a")
    marks.note(15)
    assert marks.needed("a") == marks.needed("b") == 15


def test_what_is_forgotten_counts_for_everybody() -> None:
    marks = Watermarks(tenants=2)
    for place, tenant in enumerate(("a", "b", "a"), 1):
        marks.note(place, tenant)
    assert [marks.needed(tenant) for tenant in ("a", "b", "other")] == [3, 2, 0]
    marks.note(9, "c")
    # The one that wrote longest ago gave way.
    assert [marks.needed(tenant) for tenant in ("a", "b", "c", "other")] == [3, 2, 9, 2]
