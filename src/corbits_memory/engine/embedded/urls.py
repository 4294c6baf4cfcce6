"""How to reach a running server."""

from urllib.parse import quote, urlencode

from psycopg.pq import PGconn, Ping

from corbits_memory.engine.embedded.initdb import SUPERUSER
from corbits_memory.engine.embedded.pidfile import PidFile

MAINTENANCE_DATABASE = "postgres"

_PING_SECONDS = 10


def socket_url(record: PidFile, database: str) -> str:
    """Connection URI by the Unix socket that ``postmaster.pid`` names; no password is needed."""
    # libpq doesn't read + as a space.
    place = urlencode({"host": record.socket_dir, "port": record.port}, quote_via=quote)
    return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?{place}"


def tcp_url(port: int, password: str, database: str) -> str:
    """Connection URI by TCP on this machine."""
    user = f"{SUPERUSER}:{quote(password, safe='')}"
    return f"postgresql://{user}@localhost:{port}/{quote(database, safe='')}"


def ping(record: PidFile | None) -> Ping:
    """OK when the server takes connections, even when all are taken; REJECT while it is coming up or down."""
    if record is None or record.socket_dir is None or record.port is None:
        return Ping.NO_RESPONSE
    url = f"{socket_url(record, MAINTENANCE_DATABASE)}&connect_timeout={_PING_SECONDS}"
    return Ping(PGconn.ping(url.encode()))
