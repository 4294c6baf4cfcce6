"""How much a version's origin counts, computed once at capture."""

import math

from corbits_memory.core.enums import CreatedByKind, RankingSource
from corbits_memory.core.scale import clamp01

KIND_SHARE, ACTORS_SHARE, SOURCE_SHARE, SOCIAL_SHARE = 0.3, 0.3, 0.3, 0.1
ACTORS_FULL = 8
"""From this many actors on the signal is 1."""
KIND_WEIGHTS = {
    CreatedByKind.HUMAN: 1.0,
    CreatedByKind.AGENT: 0.6,
    CreatedByKind.SYSTEM: 0.4,
    CreatedByKind.ADAPTER: 0.3,
}
SOURCE_WEIGHTS = {
    RankingSource.CHANNEL: 1.0,
    RankingSource.THREAD: 0.8,
    RankingSource.CALL: 0.7,
    RankingSource.NATIVE: 0.4,
    RankingSource.RECORD: 0.3,
}


def authority(
    kind: CreatedByKind,
    actors: float = 1,
    source: RankingSource = RankingSource.NATIVE,
    social: bool = False,
) -> float:
    """0 to 1 from who wrote it, how many took part, where it was said, and whether others reacted."""
    actor_signal = min(math.log(max(1, math.floor(actors))) / math.log(ACTORS_FULL), 1.0)
    return clamp01(
        KIND_SHARE * KIND_WEIGHTS[kind]
        + ACTORS_SHARE * actor_signal
        + SOURCE_SHARE * SOURCE_WEIGHTS[source]
        + SOCIAL_SHARE * (1.0 if social else 0.0)
    )
