"""The memory inside a Starlette app: ``uvicorn mount_starlette:app`` with DATABASE_URL set."""

from starlette.applications import Starlette
from starlette.requests import Request

from corbits_memory import Caller, create_memory, load_memory_config, register_memory_routes

USERS = {"Bearer ann-secret": Caller("acme", "ann")}


def identity(request: Request) -> Caller | None:
    """Your own login goes here: who asks, of which tenant; None when nobody you know."""
    return USERS.get(request.headers.get("authorization", ""))


memory = create_memory(load_memory_config())
app = Starlette(lifespan=memory.lifespan)
register_memory_routes(app, memory, identity=identity)
