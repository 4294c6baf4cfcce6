"""Every verb on a real Citus cluster, where somebody names one."""

import os
import uuid

import psycopg
import pytest

from corbits_memory.engine.distribution import distribute
from corbits_memory.server.startup import migrate, open_plane
from tests.engine.conftest import embed_words
from tests.engine.scale.exercise import config_of, exercise
from tests.models.conftest import ModelServer

VARIABLE = "CORBITS_MEMORY_TEST_CITUS_URL"
URL = os.environ.get(VARIABLE, "")

pytestmark = pytest.mark.skipif(
    not URL,
    reason=f"{VARIABLE} names no Citus cluster: a database of its coordinator, with citus and vector on every node",
)


@pytest.mark.parametrize("worker", [False, True], ids=["drained", "with a worker"])
async def test_every_verb_on_a_cluster(worker: bool) -> None:
    with ModelServer() as models:
        models.script(embed_words)
        config = config_of(URL, models.url)
        await migrate(config.memory)
        async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as owner:
            await distribute(owner)
        async with open_plane(config, run_worker=worker) as plane:
            # Several, so that more than one node has some.
            for _ in range(4):
                await exercise(plane, f"t-{uuid.uuid4()}")
        async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as owner:
            assert (await distribute(owner)).tables == ()
