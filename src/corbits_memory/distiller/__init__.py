"""Distilling: an inference of the host's reads what is new in the memory and writes a few claims about it.

>>> distiller = create_resident_distiller(
...     client, distill=ChatDistiller(config), cursors=cursors, tenant_id="acme", principal_id="distiller"
... )
>>> await distiller.run()
"""

from corbits_memory.distiller.chat import ChatConfig, ChatDistiller, load_chat_config, related_by_search
from corbits_memory.distiller.claims import (
    DISTILLER_AGENT_ID,
    build_distilled_claim,
    claim_ref,
    resolve_next_cursor,
    should_process_feed_entry,
    worth_distilling,
)
from corbits_memory.distiller.cursors import Consumer, CursorState, CursorStore, Failure
from corbits_memory.distiller.entries import (
    Distill,
    DistillEntry,
    DistillTick,
    Outcome,
    Poison,
    Poisoned,
    Skip,
    Write,
    Wrote,
)
from corbits_memory.distiller.errors import (
    DistillAnswerError,
    DistillUnavailableError,
    LeaseLostError,
    TickAbortedError,
)
from corbits_memory.distiller.memory import DistilledMemory, PlaneMemory
from corbits_memory.distiller.resident import (
    DISTILLER_CRON,
    DISTILLER_WORKFLOW_ID,
    DistillerWorkflow,
    ResidentDistiller,
    ResidentTick,
    create_resident_distiller,
)
from corbits_memory.distiller.tick import run_distill_tick

__all__ = [
    "DISTILLER_AGENT_ID",
    "DISTILLER_CRON",
    "DISTILLER_WORKFLOW_ID",
    "ChatConfig",
    "ChatDistiller",
    "Consumer",
    "CursorState",
    "CursorStore",
    "Distill",
    "DistillAnswerError",
    "DistillEntry",
    "DistillTick",
    "DistillUnavailableError",
    "DistilledMemory",
    "DistillerWorkflow",
    "Failure",
    "LeaseLostError",
    "Outcome",
    "PlaneMemory",
    "Poison",
    "Poisoned",
    "ResidentDistiller",
    "ResidentTick",
    "Skip",
    "TickAbortedError",
    "Write",
    "Wrote",
    "build_distilled_claim",
    "claim_ref",
    "create_resident_distiller",
    "load_chat_config",
    "related_by_search",
    "resolve_next_cursor",
    "run_distill_tick",
    "should_process_feed_entry",
    "worth_distilling",
]
