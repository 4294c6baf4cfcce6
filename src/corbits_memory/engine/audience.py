"""Who may read a claim: never more than those who may read what it was made from.

Kept where a document's tags are settled, whatever they come from: asked for in this ``add``, left as the
document had them, or added to an earlier claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corbits_memory.access.sharing import common_readers, split_audience_widen
from corbits_memory.access.tags import RESERVED_PREFIXES, document_tag, owner_tag
from corbits_memory.engine.drafts import Draft, Row


@dataclass(frozen=True, slots=True)
class Source:
    """A version that a claim refers to: its document's owner and tags."""

    owner: str
    tags: frozenset[str]


def reserved_tags(draft: Draft, principal_id: str) -> list[str]:
    """The tags that the caller asks for and only the memory gives, its own owner tag apart."""
    share = draft.document.share
    asked = (*(draft.access_tags or ()), *(share.tags if share is not None else ()))
    own = owner_tag(principal_id)
    return [tag for tag in asked if tag.startswith(RESERVED_PREFIXES) and tag != own]


def narrow_to_sources(draft: Draft, sources: Mapping[str, Source], principal_id: str) -> bool:
    """Withhold what would widen the audience of somebody else's source. False: a reserved tag is nobody's copy.

    The owner of every source may show the claim to whom it likes.
    """
    derived = [sources[reference] for reference in draft.document.derived_from]
    copied = {tag for source in derived for tag in source.tags}
    if not copied.issuperset(reserved_tags(draft, principal_id)):
        return False
    foreign = [source.tags for source in derived if source.owner != principal_id]
    draft.readers = common_readers(foreign, principal_id)
    if draft.readers is None:
        return True
    withheld: list[str] = []
    if draft.access_tags is not None:
        allowed, refused = split_audience_widen(draft.readers, draft.access_tags)
        draft.access_tags = list(allowed)
        withheld.extend(refused)
    if draft.system_tags is not None:
        allowed, refused = split_audience_widen(draft.readers, draft.system_tags)
        draft.system_tags = list(allowed)
        withheld.extend(refused)
    withheld.extend(draft.peers)
    draft.peers = []
    _withhold(draft, withheld)
    return True


def fits(draft: Draft, row: Row) -> bool:
    """Whether what a known document already carries shows the draft to no more readers than its sources have."""
    if draft.readers is None:
        return True
    carried = {*row["access_tags"], *row["system_tags"]}
    return carried <= draft.readers | {owner_tag(row["owner_principal_id"])}


def settle_tags(draft: Draft, row: Row) -> None:
    """What was not given stays as the document has it, so far as the draft's sources allow."""
    draft.document_id = row["id"]
    draft.thread_seq = row["thread_seq"]
    draft.owner = row["owner_principal_id"]
    draft.own_tags = list(row["access_tags"] if draft.access_tags is None else draft.access_tags)
    # Shares add up, and end by unsharing only: a repeat must not let them evaporate.
    system = dict.fromkeys((*row["system_tags"], *(draft.system_tags or ())))
    if draft.peers:
        system[document_tag(draft.document_id)] = None
    draft.shared_tags = [tag for tag in system if tag not in draft.own_tags]
    if draft.readers is not None:
        _keep(draft, draft.readers | {owner_tag(draft.owner)})


def widens(draft: Draft, row: Row) -> bool:
    """Whether a known document gets tags that it didn't have: then what it was made from before counts, too."""
    return not row["fresh"] and not {*row["access_tags"], *row["system_tags"]}.issuperset(draft.tags)


def narrow_to_lineage(draft: Draft, row: Row, foreign: Sequence[frozenset[str]]) -> None:
    """Withhold what would show an earlier claim to more readers than its sources of somebody else have."""
    readers = common_readers(foreign, draft.owner)
    if readers is None:
        return
    own_tag = document_tag(draft.document_id)
    allowed = readers.union(row["access_tags"], row["system_tags"])
    if own_tag not in allowed and draft.peers:
        _withhold(draft, draft.peers)
        draft.peers = []
        draft.shared_tags = [tag for tag in draft.shared_tags if tag != own_tag]
    _keep(draft, allowed)


def _keep(draft: Draft, allowed: frozenset[str]) -> None:
    draft.own_tags, refused = map(list, split_audience_widen(allowed, draft.own_tags))
    draft.shared_tags, refused_too = map(list, split_audience_widen(allowed, draft.shared_tags))
    _withhold(draft, [*refused, *refused_too])


def _withhold(draft: Draft, withheld: Sequence[str]) -> None:
    draft.withheld = list(dict.fromkeys((*draft.withheld, *withheld)))
