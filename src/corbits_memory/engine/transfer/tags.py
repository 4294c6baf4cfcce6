"""Tags of an imported document: those that an add could have given it."""

from corbits_memory.access.tags import (
    RESERVED_PREFIXES,
    TENANT_PREFIX,
    document_tag,
    owner_tag,
    tag_problem,
    tenant_tag,
)
from corbits_memory.core import limits
from corbits_memory.engine.transfer.fields import Fields
from corbits_memory.engine.transfer.format import Row


def check_tags(
    fields: Fields, field: str, document: Row, *, exported_tenant: str, tenant: str
) -> tuple[list[str], frozenset[str]]:
    """The tags in order, and those of them that this document's own owner, id and tenant don't give.

    The tag of the tenant that was exported becomes that of this one: who sees everything of one sees it here.
    """
    owner, own = document["owner_principal_id"], document_tag(document["id"])
    exported, here = tenant_tag(exported_tenant), tenant_tag(tenant)
    tags: dict[str, None] = {}
    foreign: set[str] = set()
    given = fields.problems.items(fields.called(field), fields.get(field), max_items=limits.TAGS_PER_DOCUMENT)
    for index, item in enumerate(given):
        problem = _tag_problem(item, owner, exported)
        if problem is not None:
            fields.add(f"{field}[{index}]", problem)
            continue
        tag = here if item == exported else str(item)
        tags[tag] = None
        if tag.startswith(RESERVED_PREFIXES) and tag not in (owner_tag(owner), own, here):
            foreign.add(tag)
    return list(tags), frozenset(foreign)


def _tag_problem(tag: object, owner: str, exported: str) -> str | None:
    if not isinstance(tag, str):
        return "must be text"
    if tag != tag.strip():
        return "must not begin or end with blanks"
    if tag.startswith(TENANT_PREFIX) and tag != exported:
        return "names another tenant than the export's"
    return tag_problem(tag, principal_id=owner, reserved_too=True)
