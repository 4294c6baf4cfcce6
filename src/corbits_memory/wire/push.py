"""What the routes of webhooks take and answer."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from corbits_memory.core import limits
from corbits_memory.core.enums import FeedOp
from corbits_memory.core.instants import iso_instant
from corbits_memory.ports import CreatedSubscription, DeadLetter, Subscription
from corbits_memory.wire import fields
from corbits_memory.wire.requests import Request
from corbits_memory.wire.responses import Response

Seq = Annotated[int, Field(ge=0, le=limits.SAFE_INTEGER)]


class SubscribeRequest(Request):
    """Where to send the feed, and whose."""

    url: Annotated[str, Field(max_length=limits.URL_CHARS, pattern=r"^https?://\S+$")] = Field(
        description="https, without user, password and fragment; its host must be of the public internet, unless "
        "an operator allowed it."
    )
    principal: fields.Id | None = Field(
        None, description="The caller, which is the default: what it may see is told."
    )
    ops: Annotated[list[FeedOp], Field(max_length=len(FeedOp))] | None = Field(
        None, description="Default `upsert` alone."
    )
    exclude_generator: fields.BlankableId | None = Field(None, description="Without what this agent made.")
    include_text: bool | None = Field(None, description="Default false.")
    after: Seq | None = Field(None, description="Begin after this number. Default: from now on.")


class ReplayRequest(Request):
    """Which dead letters to send again. Default: all."""

    seqs: Annotated[list[Seq], Field(max_length=limits.REPLAYED)] | None = None


class SubscriptionResponse(Response):
    id: str
    url: str
    principal: str
    created_by: str
    ops: list[FeedOp]
    exclude_generator: str | None
    include_text: bool
    position: int = Field(description="Everything up to this number was delivered, passed over or given up.")
    failures: int = Field(description="Of the entry that comes next.")
    last_error: str | None
    last_delivered_at: str | None
    created_at: str
    dead: int = Field(description="How many entries were given up.")


class SubscribeResponse(SubscriptionResponse):
    secret: str = Field(description="What deliveries are signed with. Told only now.")


class SubscriptionsResponse(Response):
    subscriptions: list[SubscriptionResponse]


class UnsubscribeResponse(Response):
    id: str
    removed: bool


class DeadLetterResponse(Response):
    feed_seq: int
    op: FeedOp | None
    version_id: str | None
    failures: int
    error: str
    failed_at: str


class DeadLettersResponse(Response):
    dead: list[DeadLetterResponse]


class ReplayResponse(Response):
    replayed: int


def subscribe_response(created: CreatedSubscription) -> SubscribeResponse:
    told = subscription_response(created.subscription).model_dump()
    return SubscribeResponse.model_validate({**told, "secret": created.secret})


def subscription_response(subscription: Subscription) -> SubscriptionResponse:
    delivered = subscription.last_delivered_at
    return SubscriptionResponse(
        id=subscription.id,
        url=subscription.url,
        principal=subscription.principal_id,
        created_by=subscription.created_by,
        ops=list(subscription.ops),
        exclude_generator=subscription.exclude_generator,
        include_text=subscription.include_text,
        position=subscription.position,
        failures=subscription.failures,
        last_error=subscription.last_error,
        last_delivered_at=None if delivered is None else iso_instant(delivered),
        created_at=iso_instant(subscription.created_at),
        dead=subscription.dead,
    )


def subscriptions_response(subscriptions: Sequence[Subscription]) -> SubscriptionsResponse:
    return SubscriptionsResponse(subscriptions=[subscription_response(one) for one in subscriptions])


def dead_letters_response(dead: Sequence[DeadLetter]) -> DeadLettersResponse:
    return DeadLettersResponse(
        dead=[
            DeadLetterResponse(
                feed_seq=letter.seq,
                op=letter.op,
                version_id=letter.version_id,
                failures=letter.failures,
                error=letter.error,
                failed_at=iso_instant(letter.failed_at),
            )
            for letter in dead
        ]
    )
