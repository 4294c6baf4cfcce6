"""Who may read a claim: never more than those who may read what it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass

from corbits_memory.access.sharing import common_readers, split_audience_widen
from corbits_memory.access.tags import RESERVED_PREFIXES, owner_tag
from corbits_memory.engine.drafts import Draft


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
    readers = common_readers(foreign, principal_id)
    if readers is None:
        return True
    withheld: list[str] = []
    if draft.access_tags is not None:
        allowed, refused = split_audience_widen(readers, draft.access_tags)
        draft.access_tags = list(allowed)
        withheld.extend(refused)
    if draft.system_tags is not None:
        allowed, refused = split_audience_widen(readers, draft.system_tags)
        draft.system_tags = list(allowed)
        withheld.extend(refused)
    withheld.extend(draft.peers)
    draft.peers = []
    # A transaction that runs again has nothing left to withhold.
    draft.withheld = list(dict.fromkeys((*draft.withheld, *withheld)))
    return True
