"""Processes of stdio servers that outlived their platform, shim and guard: found by a variable, and ended."""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcp_gateway.sessions.isolation import PrivateFiles
from starling.core.ids import has_ended
from starling.core.settings.schema import environment

MARK: Final = "STARLING_SERVER"  # of all processes of a server: the name of its platform's process, and its own
_log = logging.getLogger(__name__)


async def end_leftovers(private: PrivateFiles, seconds: float = 1.5) -> None:
    """End what servers left that were started by a process that has ended: of this user and the servers'. Linux only.

    A shim that was not killed gets `seconds` to do so itself; then come SIGTERM and, as much later, SIGKILL.
    """
    users = {os.geteuid(), *([private.user.uid] if private.user else [])}
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        if not (left := await asyncio.to_thread(_signal, users, number)):
            return
        if number == signal.SIGTERM:
            _log.warning("processes of MCP servers that outlived a killed platform are ended: %s", dict(left))
        await asyncio.sleep(seconds)


def _signal(users: Collection[int], number: int) -> Counter[str]:
    """Send a signal to each process that was left; return how many were, by server."""
    found, own = Counter[str](), environment().get(MARK)  # its own is set if a server started this process
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, OverflowError):  # it ended, can't be read, or made its mark itself
            if process.stat().st_uid in users:
                variables = b"\0" + (process / "environ").read_bytes()
                mark = os.fsdecode(variables.partition(f"\0{MARK}=".encode())[2].partition(b"\0")[0])
                owner, _, server = mark.partition(" ")
                if mark != own and has_ended(owner):
                    os.kill(int(process.name), number)
                    found[server] += 1
    return found
