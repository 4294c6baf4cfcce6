"""A Postgres server of our own, supervised.

Processes that use one data directory share one server. The kernel's file locks say who uses it, so no
crash can leave a lie behind:

``lease.lock``
    Held shared by every process that uses the server, exclusively by whoever stops it.
``server.lock``
    Held by the server's processes themselves: they inherit it. Free means that none of them runs, whatever
    ``postmaster.pid`` says.
``start.lock``
    Held while somebody looks for the server or starts it.

A guardian (:mod:`~corbits_memory.engine.embedded.guardian`) is the server's parent. It waits for the
exclusive lease, which it gets when the last user has gone, even by ``kill -9``, and then stops the server.
It also restarts a server that was killed. When the guardian itself was killed, the last user that leaves
in good order stops the server, and else the next start adopts it.
"""
