"""Conditions that grants may carry, and what evaluates them. A host registers its own beside these."""

import re
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from corbits_memory.access.sharing import SHARE_CONDITION
from corbits_memory.ports import ConditionContext, ConditionRegistry

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def time_window(value: Any, context: ConditionContext) -> bool:
    """``{"after": "09:00", "before": "17:00", "timezone": "Europe/Berlin"}``: from after until just before.

    A window may cross midnight. Raises ``ValueError`` for anything else, equal bounds included.
    """
    if not isinstance(value, dict):
        raise ValueError("a time window is an object with after, before and timezone")
    after, before = _clock(value.get("after")), _clock(value.get("before"))
    if after == before:
        raise ValueError("a time window's after and before must differ")
    name = value.get("timezone")
    if not isinstance(name, str) or not name:
        raise ValueError("a time window needs a timezone")
    try:
        moment = context.now.astimezone(ZoneInfo(name)).time()
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # Not found, a path, or a folder of the zones' own.
        raise ValueError("a time window's timezone is not known here") from error
    if after < before:
        return after <= moment < before
    return moment >= after or moment < before


def tool(value: Any, context: ConditionContext) -> bool:
    """The name of the one tool that may ask. Raises ``ValueError`` for what can't be a name."""
    if not isinstance(value, str) or not value:
        # Raised, not False: a malformed deny must not vanish.
        raise ValueError("a tool is a name")
    return value == context.consumer


def _clock(value: object) -> time:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("a time window's bounds are HH:MM")
    return time(int(found[1]), int(found[2]))


def _always(value: Any, context: ConditionContext) -> bool:
    return True


STOCK_CONDITIONS: ConditionRegistry = {"time_window": time_window, "tool": tool}
MEMORY_SHARE_CONDITION_REGISTRY: ConditionRegistry = {SHARE_CONDITION: _always}
"""The condition of sharing's own grants says where they come from, and is always met. A host may override it."""
BUILT_IN_CONDITIONS: ConditionRegistry = {**STOCK_CONDITIONS, **MEMORY_SHARE_CONDITION_REGISTRY}
"""What a memory evaluates without a registry of its host's."""
