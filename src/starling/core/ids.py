"""Ids: uuidv7 (RFC 9562), made in the application, so that they sort by time and need no round trip."""

import hashlib
import os
import secrets
import socket
import time
import uuid
from functools import cache
from pathlib import Path


def new_id() -> str:
    """Return a new uuidv7 in its canonical text form.

    48 bits of milliseconds, 12 of their fraction (so that ids sort as they were made: RFC 9562, method 3), 62 random.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))


def process_name() -> str:
    """Return the name of this process: its host and id; where that counts, a random part, its start."""
    return _name_of(os.getpid())


@cache
def _name_of(process: int) -> str:
    return f"{socket.gethostname()}:{process}:{_id_space()}{secrets.token_hex(3)}.{_started(process)}"


def has_ended(name: str) -> bool:
    """Whether it is certain that the process of a `process_name` has ended; never of one of another machine."""
    host, _, rest = name.partition(":")
    process, _, space = rest.partition(":")
    if host != socket.gethostname() or not _id_space() or not space.startswith(_id_space()):
        return False
    try:
        os.kill(int(process), 0)
    except OSError as error:  # one of another user can't be signalled
        if isinstance(error, ProcessLookupError):
            return True
    started = space.partition(".")[2]  # else another process has its id now
    return started != "" and _started(int(process)) not in ("", started)


def _started(process: int) -> str:
    """Return when a process was started, in ticks of the machine; empty if unknown, `ended` for a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "ended" if state[0] == b"Z" and state[17] == b"1" else state[19].decode()  # and no thread is left


@cache
def _id_space() -> str:
    """Return what tells apart where process ids count: the start of the machine, and the container."""
    try:
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        return ""
    return hashlib.sha256(seen.encode()).hexdigest()[:8]


def trace_id_of(run_id: str) -> str:
    """Return the trace id of a run: 32 hex digits, the same in every process."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]
