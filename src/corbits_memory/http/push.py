"""The routes of webhooks, for administrators."""

from typing import Any

from corbits_memory.admin import MemoryAdmin
from corbits_memory.core import limits
from corbits_memory.core.enums import Capability
from corbits_memory.errors import ForbiddenError
from corbits_memory.http.calls import Call, Operation
from corbits_memory.http.query import number
from corbits_memory.validation import Problems
from corbits_memory.wire import push, responses

_ONE = "/subscriptions/{subscription_id}"


async def subscribe(call: Call) -> responses.Response:
    # Absent and null are the same: the validation says what is required.
    given: Any = {name: call.body.get(name) for name in push.SubscribeRequest.model_fields}
    caller = call.caller
    named = given["principal"]
    if isinstance(named, str) and named.strip() and named != caller.principal_id:
        # An administrator is no reader of everybody's documents.
        raise ForbiddenError("a subscription tells what its maker may see; leave principal out")
    created = await MemoryAdmin(call.memory).subscribe(
        tenant_id=caller.tenant_id, actor=caller.principal_id, **given
    )
    return push.subscribe_response(created)


async def subscriptions(call: Call) -> responses.Response:
    return push.subscriptions_response(
        await MemoryAdmin(call.memory).subscriptions(tenant_id=call.caller.tenant_id)
    )


async def unsubscribe(call: Call) -> responses.Response:
    named = _named(call)
    await MemoryAdmin(call.memory).unsubscribe(actor=call.caller.principal_id, **named)
    return push.UnsubscribeResponse(id=named["subscription_id"], removed=True)


async def dead_letters(call: Call) -> responses.Response:
    problems = Problems()
    after = number(
        call, problems, "after", low=0, high=limits.SAFE_INTEGER, rule="must be a non-negative integer"
    )
    limit = number(
        call,
        problems,
        "limit",
        low=1,
        high=limits.DEAD_LIMIT_MAX,
        rule=f"must be an integer from 1 to {limits.DEAD_LIMIT_MAX}",
    )
    problems.raise_if_any()
    dead = await MemoryAdmin(call.memory).dead_letters(
        **_named(call), after=after or 0, limit=limit or limits.DEAD_LIMIT_DEFAULT
    )
    return push.dead_letters_response(dead)


async def replay(call: Call) -> responses.Response:
    replayed = await MemoryAdmin(call.memory).replay(**_named(call), seqs=call.body.get("seqs"))
    return push.ReplayResponse(replayed=replayed)


def _named(call: Call) -> dict[str, str]:
    return {
        "tenant_id": call.caller.tenant_id,
        "subscription_id": call.request.path_params["subscription_id"],
    }


PUSH_OPERATIONS = (
    Operation(
        id="memory_subscribe",
        method="POST",
        path="/subscriptions",
        capability=Capability.ADMIN,
        summary="Have the feed sent to a URL",
        handle=subscribe,
        request=push.SubscribeRequest,
        response=push.SubscribeResponse,
    ),
    Operation(
        id="memory_subscriptions",
        method="GET",
        path="/subscriptions",
        capability=Capability.ADMIN,
        summary="The webhooks, and how they fare",
        handle=subscriptions,
        response=push.SubscriptionsResponse,
    ),
    Operation(
        id="memory_unsubscribe",
        method="DELETE",
        path=_ONE,
        capability=Capability.ADMIN,
        summary="Remove a webhook and its dead letters",
        handle=unsubscribe,
        response=push.UnsubscribeResponse,
    ),
    Operation(
        id="memory_dead_letters",
        method="GET",
        path=f"{_ONE}/dead",
        capability=Capability.ADMIN,
        summary="What could not be delivered",
        handle=dead_letters,
        response=push.DeadLettersResponse,
        query=(
            {
                "name": "after",
                "in": "query",
                "description": "The number of the last dead letter that was seen.",
                "schema": {"type": "integer", "minimum": 0, "maximum": limits.SAFE_INTEGER},
            },
            {
                "name": "limit",
                "in": "query",
                "description": f"Default {limits.DEAD_LIMIT_DEFAULT}.",
                "schema": {"type": "integer", "minimum": 1, "maximum": limits.DEAD_LIMIT_MAX},
            },
        ),
    ),
    Operation(
        id="memory_replay",
        method="POST",
        path=f"{_ONE}/replay",
        capability=Capability.ADMIN,
        summary="Send dead letters again",
        handle=replay,
        request=push.ReplayRequest,
        response=push.ReplayResponse,
    ),
)
