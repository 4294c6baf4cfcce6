"""A host under attack: the reference host on a real socket over real Postgres, in a thread of its own.

Ann of acme has a secret. Eve, who may do everything in another tenant, and Bob, who may do everything in Ann's but
was given nothing of hers, try to get at it.
"""

import asyncio
import contextlib
import socket
import threading
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import psycopg
from psycopg import sql

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.config import EngineConfig
from corbits_memory.core.enums import Capability
from corbits_memory.core.ids import DOCUMENT, VERSION, encode_id
from corbits_memory.engine.pool import Database
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.http.calls import Operation
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.plane import Memory
from corbits_memory.server.app import host_app
from corbits_memory.server.identity import TokenIdentity
from corbits_memory.server.listen import HostServer, bind, server_config
from corbits_memory.server.rates import TokenBuckets
from corbits_memory.server.tokens import NewToken, Tokens

VICTIM, OTHERS = "acme", "evil-corp"
CANARY = "quixoticcanary"
"""Stands in everything that Ann wrote. Whoever else is answered with it has broken in."""
SECRET: dict[str, Any] = {
    "title": f"The {CANARY} plan",
    "text": f"The vault's code is {CANARY}. Nobody but Ann knows of the lighthouse.",
    "external_ref": f"ref-{CANARY}",
    "thread": f"thread-{CANARY}",
    "author": f"author-{CANARY}",
    "kind": f"kind-{CANARY}",
    "attributes": {"code": CANARY},
    "access_tags": [f"memory.space:{CANARY}", "memory.space:eng"],
}
ENTITY = "ent_acme_1"
SECONDS = 30.0
STREAM_SECONDS = 0.5
T = TypeVar("T")


class QuietServer(HostServer):
    """Not in the main thread, where alone signals can be caught."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class World:
    url: str
    database_url: str
    loop: asyncio.AbstractEventLoop
    tokens: Tokens
    grants: InMemoryGrantStore
    client: httpx2.Client
    secrets: dict[str, str] = field(default_factory=dict)
    document: str = ""
    version: str = ""
    claim: str = ""

    # --- asking ---

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def token(
        self,
        tenant: str,
        principal: str,
        *,
        capabilities: frozenset[Capability] = frozenset(Capability),
        expires_at: datetime | None = None,
    ) -> NewToken:
        return self.run(
            self.tokens.create(
                tenant_id=tenant, principal_id=principal, capabilities=capabilities, expires_at=expires_at
            )
        )

    def headers(self, who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secrets[who]}"}

    def ask(
        self, who: str | None, method: str, path: str, *, tenant: str | None = None, **given: Any
    ) -> httpx2.Response:
        """One request below a tenant's path, by default that of the one who asks."""
        headers = given.pop("headers", {}) | ({} if who is None else self.headers(who))
        base = f"{self.url}/api/tenants/{tenant or (OTHERS if who == 'eve' else VICTIM)}/memory"
        if path.partition("?")[0].endswith("/stream"):
            # Less than the pause between two heartbeats: else it is read for ever.
            given.setdefault("timeout", STREAM_SECONDS)
        with self.client.stream(method, base + path, headers=headers, **given) as answer:
            if "text/event-stream" not in answer.headers.get("content-type", ""):
                answer.read()
                return answer
            # It never ends: what comes in the first moments is what there is to see.
            seen = b""
            with contextlib.suppress(httpx2.TimeoutException):
                for piece in answer.iter_raw():
                    seen += piece
        return httpx2.Response(answer.status_code, headers=answer.headers, content=seen)

    def raw(self, request: bytes) -> bytes:
        """What is answered to these very bytes, until the server closes or has nothing more to say."""
        address = urlsplit(self.url)
        with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=5) as conn:
            answer = b""
            with contextlib.suppress(TimeoutError, ConnectionError):
                conn.sendall(request)
                while piece := conn.recv(65_536):
                    answer += piece
                    # What else there is to say follows at once.
                    conn.settimeout(0.3)
            return answer

    # --- looking ---

    def state(self, tenant: str = VICTIM) -> dict[str, str]:
        """A fingerprint of every table's rows of a tenant."""
        found = {}
        with psycopg.connect(self.database_url) as conn:
            names = conn.execute(
                "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
                "AND a.attname = 'tenant_id' WHERE c.relnamespace = 'memory'::regnamespace "
                "AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            ).fetchall()
            for (name,) in names:
                row = conn.execute(
                    sql.SQL(
                        "SELECT coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '') FROM memory.{} t "
                        "WHERE tenant_id = %s"
                    ).format(sql.Identifier(name)),
                    [tenant],
                ).fetchone()
                found[name] = str(row[0]) if row else ""
        return found

    def seen_by_ann(self) -> list[str]:
        answer = self.ask("ann", "POST", "/search", json={"query": CANARY, "limit": 50})
        return [item["documentId"] for item in answer.json()["items"]]


@contextmanager
def world_over(database_url: str, *, failures: int = 1_000_000) -> Iterator[World]:
    """The host, filled, as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="host", daemon=True)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    stack = AsyncExitStack()
    try:
        with bind("127.0.0.1", 0) as listener:
            world = run(_open(stack, database_url, listener, failures))
            _fill(world)
            try:
                yield world
            finally:
                run(stack.aclose())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _open(stack: AsyncExitStack, database_url: str, listener: socket.socket, failures: int) -> World:
    config = EngineConfig(database_url=database_url, db_pool_max=4, run_worker=False)
    database = Database(database_url, pool_max=3)
    await database.open()
    stack.push_async_callback(database.close)
    grants = InMemoryGrantStore()
    store = PostgresDocumentStore(config, embedder=None, reranker=None)
    memory = await stack.enter_async_context(Memory(store, grant_store=grants))
    assert store.second_lock
    tokens = Tokens(database)
    identity = TokenIdentity(tokens, failures=TokenBuckets(failures))
    started = asyncio.Event()
    app = host_app(memory, identity=identity, database=database)
    server = QuietServer(server_config(app, max_connections=100), on_start=started.set)
    task = asyncio.create_task(server.serve(sockets=[listener]))

    async def stop() -> None:
        server.should_exit = True
        await task

    stack.push_async_callback(stop)
    await asyncio.wait_for(started.wait(), 10)
    return World(
        url=f"http://127.0.0.1:{listener.getsockname()[1]}",
        database_url=database_url,
        loop=asyncio.get_running_loop(),
        tokens=tokens,
        grants=grants,
        client=stack.enter_context(httpx2.Client(trust_env=False, timeout=SECONDS)),
    )


def _fill(world: World) -> None:
    for who, tenant in (("ann", VICTIM), ("bob", VICTIM), ("eve", OTHERS)):
        world.secrets[who] = world.token(tenant, who).secret
    added = world.ask("ann", "POST", "/add", json=SECRET)
    assert added.status_code == 200, added.text
    world.document, world.version = added.json()["documentId"], added.json()["versionId"]
    claim = {"title": f"A claim of {CANARY}", "text": f"{CANARY} follows.", "derived_from": [world.version]}
    world.claim = world.ask("ann", "POST", "/add", json=claim).json()["versionId"]
    for who in ("bob", "eve"):
        own = {"title": f"{who}'s own", "text": "The lighthouse of somebody else.", "external_ref": "own"}
        assert world.ask(who, "POST", "/add", json=own).status_code == 200
    with psycopg.connect(world.database_url) as conn:
        conn.execute(
            "INSERT INTO memory.entity (tenant_id, id, kind, identifiers) "
            "VALUES (%s, %s, 'person', jsonb_build_object('value', %s::text))",
            [VICTIM, ENTITY, CANARY],
        )
        conn.execute(
            "INSERT INTO memory.edge (tenant_id, id, rel, from_type, from_ref, to_type, to_ref) "
            "VALUES (%s, 'edg_1', 'about', 'document', %s, 'entity', %s)",
            [VICTIM, world.document, ENTITY],
        )


# --- what to ask -------------------------------------------------------------------------------------

ABSENT = encode_id(DOCUMENT, uuid.UUID("01890000-0000-7000-8000-000000000000"))
ABSENT_VERSION = encode_id(VERSION, uuid.UUID("01890000-0000-7000-8000-000000000000"))


def path_of(operation: Operation, ids: dict[str, str]) -> str:
    """The operation's path with an id for each of its parameters; one that is not named gets the document's."""
    path = operation.path
    while "{" in path:
        before, _, rest = path.partition("{")
        name, _, after = rest.partition("}")
        path = before + ids.get(name.partition(":")[0], ids["document_id"]) + after
    return path


BODY: dict[str, Any] = {
    "title": "a",
    "text": "b",
    "query": "lighthouse",
    "items": [{"title": "a", "text": "b"}],
    "tenant": True,
    "tags": ["memory.space:eng"],
    "principals": ["carol"],
    "reason": "because",
    "retention_class": "durable",
    "max_tokens": 500,
}
"""What every route of today and tomorrow finds enough in; what one doesn't know, it ignores."""


def hostile_bodies(version: str, entity: str) -> list[dict[str, Any]]:
    """Bodies that name something of somebody else's in each place where ids can stand."""
    named: list[dict[str, Any]] = [
        {"derived_from": [version]},
        {"supports": [version]},
        {"contradicts": [version]},
        {"derived_from": [version], "access_tags": [f"memory.space:{CANARY}"]},
        {"entity_ids": [entity]},
        {"generation": "g0"},
        {"as_of": "2100-01-01T00:00:00Z"},
        {"cursor": "eyJhZnRlciI6MH0"},
        {"after": 0},
        {"thread": SECRET["thread"]},
        {"attributes": SECRET["attributes"]},
        {"kinds": [SECRET["kind"]]},
        {"sources": ["local"]},
        {
            "tenantId": VICTIM,
            "tenant_id": VICTIM,
            "principalId": "ann",
            "principal_id": "ann",
            "owner": "ann",
        },
    ]
    return [BODY | found | {"items": [{"title": "a", "text": "b"} | found]} for found in named]


EVERY = OPERATIONS
EVERY_ID = [operation.id for operation in OPERATIONS]
WITH_IDS = [operation for operation in OPERATIONS if "{" in operation.path]
