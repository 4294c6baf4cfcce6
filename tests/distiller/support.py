"""Short ways to say what these tests say often."""

from typing import Any

from corbits_memory.distiller import (
    Consumer,
    CursorStore,
    Distill,
    DistilledMemory,
    DistillEntry,
    Outcome,
    PlaneMemory,
    ResidentDistiller,
    Write,
    create_resident_distiller,
)
from corbits_memory.plane import Memory
from corbits_memory.ports import AddResult, TimelineEvent
from corbits_memory.validation import Content

TENANT, ANN, BOB = "acme", "ann", "bob"
CONSUMER = Consumer(tenant_id=TENANT, principal_id=ANN, agent_id="resident-distiller")


async def put(
    memory: Memory, title: str, *, who: str = ANN, text: str | None = None, **fields: Any
) -> AddResult:
    return await memory.add(
        tenant_id=TENANT,
        principal_id=who,
        content=Content(title=title, text=text or f"All about {title}."),
        **fields,
    )


async def claims(memory: Memory, *, who: str = ANN) -> list[TimelineEvent]:
    return await memory.list(tenant_id=TENANT, principal_id=who, kinds=["claim"], limit=100)


def write(entry: DistillEntry) -> Outcome:
    """The simplest inference: a claim an entry."""
    return Write(title=f"Claim of {entry.title}", text=f"The claim is: {entry.text}", kind="claim")


class Recorder:
    """An inference that remembers what it was asked."""

    def __init__(self, distill: Distill = write) -> None:
        self.distill = distill
        self.seen: list[DistillEntry] = []

    def __call__(self, entry: DistillEntry) -> Any:
        self.seen.append(entry)
        return self.distill(entry)

    @property
    def titles(self) -> list[str]:
        return [entry.title for entry in self.seen]


def resident(
    memory: DistilledMemory | PlaneMemory, distill: Distill, cursors: CursorStore, **options: Any
) -> ResidentDistiller:
    given = {"tenant_id": TENANT, "principal_id": ANN, "retry_seconds": 0.0, **options}
    return create_resident_distiller(memory, distill=distill, cursors=cursors, **given)
