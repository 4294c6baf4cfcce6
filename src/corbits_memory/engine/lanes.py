"""How a batch is cut: into lanes that are written at once, and each lane into transactions."""

from collections.abc import Iterator

from corbits_memory.engine.drafts import Draft

TRANSACTION_CHUNKS = 1_000
"""A batch is cut into transactions of about this many chunks, so that none holds its locks for long."""
TRANSACTION_DOCUMENTS = 500
LANES = 2
LANE_DOCUMENTS = 100
"""A large batch is written over two connections at once, when each gets about this many documents."""


def split_lanes(planned: list[Draft]) -> list[list[Draft]]:
    """What may be written at once, over a connection each; within a lane the order stays.

    Drafts of one thread, and of one document, share a lane: there order means something, and the next must see the
    one before. Lanes thus never wait for each other's documents, only for the tenant's counter at the end.
    """
    if len(planned) < LANE_DOCUMENTS * LANES:
        return [planned]
    lanes: list[list[Draft]] = [[] for _ in range(LANES)]
    loads = [0] * LANES
    bound: dict[object, int] = {}
    for draft in planned:
        ties = [draft.key] if draft.document.thread is None else [draft.key, draft.document.thread]
        found = {bound[tie] for tie in ties if tie in bound}
        if len(found) > 1:
            # A document that moves from a thread to one of the other lane.
            return [planned]
        lane = found.pop() if found else loads.index(min(loads))
        bound.update(dict.fromkeys(ties, lane))
        lanes[lane].append(draft)
        loads[lane] += len(draft.chunks) + 1
    return [lane for lane in lanes if lane]


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
