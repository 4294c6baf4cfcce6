"""How a batch is cut: into lanes that are written at once, and each lane into transactions."""

from collections.abc import Iterator, Sequence

from corbits_memory.engine.drafts import Draft
from corbits_memory.ports import NewDocument

TRANSACTION_CHUNKS = 1_000
"""A batch is cut into transactions of about this many chunks, so that none holds its locks for long."""
TRANSACTION_DOCUMENTS = 500
LANES = 3
DOCUMENT_CHARS = 1_000
"""A document costs about as much as so many characters of its text."""
LANE_DOCUMENTS = 100
"""A large batch is written over several connections at once, when each gets about this many documents."""


def split_lanes(documents: Sequence[NewDocument]) -> list[list[int]]:
    """What may be written at once, over a connection each: positions, in order within a lane.

    Documents of one thread, and of one reference, share a lane: there order means something, and the next must see
    the one before. Lanes thus never wait for each other's documents, only for the tenant's counter at the end.
    """
    together = [list(range(len(documents)))]
    count = min(LANES, len(documents) // LANE_DOCUMENTS)
    if count < 2:
        return together
    lanes: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    bound: dict[object, int] = {}
    for position, document in enumerate(documents):
        ties: list[object] = []
        if document.external_ref:
            ties.append((document.adapter, document.external_ref))
        if document.thread is not None:
            ties.append(document.thread)
        found = {bound[tie] for tie in ties if tie in bound}
        if len(found) > 1:
            # A document that moves from a thread to one of another lane.
            return together
        lane = found.pop() if found else loads.index(min(loads))
        bound.update(dict.fromkeys(ties, lane))
        lanes[lane].append(position)
        loads[lane] += DOCUMENT_CHARS + sum(len(part.text) for part in document.parts)
    return [lane for lane in lanes if lane]


def split_evenly(lane: list[int], most: int) -> list[list[int]]:
    """Parts of about ``most``, in order and alike: none is a remnant that costs a transaction of its own."""
    parts = max(1, round(len(lane) / most))
    size = max(1, -(-len(lane) // parts))
    return [lane[start : start + size] for start in range(0, len(lane), size)] or [lane]


def split_transactions(planned: list[Draft]) -> Iterator[list[Draft]]:
    """Groups in order, each with a source reference at most once: a repeat in one batch sees what came before."""
    group: list[Draft] = []
    keys: set[tuple[str, str]] = set()
    chunks = 0
    for draft in planned:
        full = len(group) >= TRANSACTION_DOCUMENTS or chunks + len(draft.chunks) > TRANSACTION_CHUNKS
        if group and (full or draft.key in keys):
            yield group
            group, keys, chunks = [], set(), 0
        group.append(draft)
        keys.add(draft.key)
        chunks += len(draft.chunks)
    if group:
        yield group
