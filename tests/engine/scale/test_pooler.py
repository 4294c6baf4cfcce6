"""Everything through PgBouncer in transaction mode, where no connection keeps anything between two transactions."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from corbits_memory.server.startup import migrate, open_plane
from tests.embedded.support import wait_until
from tests.engine.conftest import embed_words
from tests.engine.scale.exercise import config_of, exercise
from tests.models.conftest import ModelServer

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")

pytestmark = pytest.mark.skipif(not PROGRAM, reason="PgBouncer is not installed")


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """The database through a pooler whose connections each serve several clients."""
    server = conninfo_to_dict(database_url)
    name = urlsplit(database_url).path.lstrip("/")
    with tempfile.TemporaryDirectory(prefix="corbits-memory-test-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        settings = place / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"{name} = host={server['host']} port={server.get('port', 5432)} user={server['user']} dbname={name}\n"
            "[pgbouncer]\n"
            f"unix_socket_dir = {place}\nlisten_addr =\nlisten_port = 6432\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 6\nmax_client_conn = 200\n"
            f"logfile = {place}/log\npidfile = {place}/pid\nserver_reset_query = DISCARD ALL\n"
        )
        account = None
        if os.geteuid() == 0:
            # It refuses to run as root, and must reach the server's socket.
            account = Path(str(server["host"])).stat().st_uid
            os.chown(place, account, -1)
        process = subprocess.Popen([str(PROGRAM), str(settings)], user=account, stderr=subprocess.DEVNULL)
        try:
            wait_until((place / ".s.PGSQL.6432").exists)
            yield f"postgresql://{server['user']}@/{name}?host={place}&port=6432"
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("worker", [False, True], ids=["drained", "with a worker"])
async def test_every_verb_through_a_pooler(pooled_url: str, worker: bool) -> None:
    with ModelServer() as models:
        models.script(embed_words)
        config = config_of(pooled_url, models.url)
        await migrate(config.memory)
        async with open_plane(config, run_worker=worker) as plane:
            await exercise(plane, "acme")


async def test_several_processes_share_a_few_connections(pooled_url: str) -> None:
    """More clients than connections, several tenants: none sees another's row, setting or temporary state."""
    with ModelServer() as models:
        models.script(embed_words)
        config = config_of(pooled_url, models.url)
        await migrate(config.memory)

        async def node(number: int) -> None:
            async with open_plane(config, run_worker=number == 0) as plane:
                await exercise(plane, f"tenant-{number}")

        await asyncio.gather(*map(node, range(4)))
        async with await psycopg.AsyncConnection.connect(
            pooled_url, autocommit=True, prepare_threshold=None
        ) as conn:
            # What a transaction set is gone with it.
            row = await (
                await conn.execute("SELECT current_user, current_setting('memory.tenant_id', true)")
            ).fetchone()
            assert row is not None
            assert row[0] != "corbits_memory_app"
            assert not row[1]
