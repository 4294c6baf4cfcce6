"""The memory inside a FastAPI app: ``uvicorn mount_fastapi:app`` with DATABASE_URL set."""

from fastapi import FastAPI, Request

from corbits_memory import Caller, create_memory, load_memory_config, register_memory_routes

USERS = {"Bearer ann-secret": Caller("acme", "ann")}


def identity(request: Request) -> Caller | None:
    """Your own login goes here: who asks, of which tenant; None when nobody you know."""
    return USERS.get(request.headers.get("authorization", ""))


memory = create_memory(load_memory_config())
app = FastAPI(lifespan=memory.lifespan)
register_memory_routes(app, memory, identity=identity)
