"""The superuser's password, which only TCP asks for."""

import os
import secrets

import psycopg

from corbits_memory.engine.embedded.account import Account
from corbits_memory.engine.embedded.initdb import SUPERUSER
from corbits_memory.engine.embedded.layout import Layout


def set_password(conn: psycopg.Connection, layout: Layout, account: Account) -> str:
    """Give the superuser the data directory's password, made on first use; only its hash is sent."""
    password = _read_or_make(layout, account)
    conn.pgconn.change_password(SUPERUSER.encode(), password.encode())
    return password


def _read_or_make(layout: Layout, account: Account) -> str:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(layout.password, flags, 0o600), "r+") as file:
        account.give_to_owner_of(layout.home, file.fileno())
        password = file.read().strip()
        if not password:
            password = secrets.token_urlsafe(24)
            file.write(password)
    return password
