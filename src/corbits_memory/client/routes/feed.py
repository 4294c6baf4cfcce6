"""The feed, and who is told of it."""

from collections.abc import Iterable, Sequence

from corbits_memory.client.calls import Call
from corbits_memory.client.routes.values import body_of, given_parameters, subscription_path
from corbits_memory.wire import feed, push


def feed_page(
    *,
    after: int = 0,
    limit: int | None = None,
    ops: Iterable[str] = (),
    exclude_generator: str | None = None,
    include_text: bool = False,
) -> Call[feed.FeedResponse]:
    """What was written after the entry numbered ``after``, in order. Ask again with ``next_cursor``.

    None there means that there is nothing new; a page may be empty and not the last (``has_more``).
    """
    parameters = [
        *given_parameters(after=after, limit=limit),
        *feed_filters(ops, exclude_generator=exclude_generator, include_text=include_text),
    ]
    return Call(method="GET", path="/feed", answer=feed.FeedResponse, parameters=parameters)


def feed_filters(
    ops: Iterable[str], *, exclude_generator: str | None, include_text: bool
) -> list[tuple[str, str]]:
    """What of the feed is asked for, as parameters of a query."""
    return [
        *(("ops", str(op)) for op in ops),
        *given_parameters(exclude_generator=exclude_generator, include="text" if include_text else None),
    ]


def subscribe(
    url: str,
    *,
    principal: str | None = None,
    ops: Sequence[str] | None = None,
    exclude_generator: str | None = None,
    include_text: bool | None = None,
    after: int | None = None,
) -> Call[push.SubscribeResponse]:
    """Have the feed sent to a URL; for administrators. The answer's ``secret`` is told only now.

    Never sent twice by itself: that would be two webhooks.
    """
    body = body_of(locals())
    return Call(
        method="POST", path="/subscriptions", answer=push.SubscribeResponse, body=body, repeatable=False
    )


def subscriptions() -> Call[push.SubscriptionsResponse]:
    """The webhooks, and how they fare."""
    return Call(method="GET", path="/subscriptions", answer=push.SubscriptionsResponse)


def unsubscribe(subscription_id: str) -> Call[push.UnsubscribeResponse]:
    """Remove a webhook and its dead letters. Never sent twice by itself, as :func:`purge`."""
    path = subscription_path(subscription_id)
    return Call(method="DELETE", path=path, answer=push.UnsubscribeResponse, repeatable=False)


def dead_letters(
    subscription_id: str, *, after: int | None = None, limit: int | None = None
) -> Call[push.DeadLettersResponse]:
    """What could not be delivered."""
    return Call(
        method="GET",
        path=subscription_path(subscription_id, "/dead"),
        answer=push.DeadLettersResponse,
        parameters=given_parameters(after=after, limit=limit),
    )


def replay(subscription_id: str, *, seqs: Sequence[int] | None = None) -> Call[push.ReplayResponse]:
    """Have dead letters sent again, all or those with these numbers."""
    return Call(
        method="POST",
        path=subscription_path(subscription_id, "/replay"),
        answer=push.ReplayResponse,
        body=body_of({"seqs": seqs}),
        repeatable=False,
    )
