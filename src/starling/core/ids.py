"""Ids: uuidv7 (RFC 9562), made in the application, so that they sort by time and need no round trip."""

import hashlib
import os
import secrets
import socket
import time
import uuid


def new_id() -> str:
    """Return a new uuidv7 in its canonical text form.

    48 bits of milliseconds, 12 of their fraction (so that ids sort as they were made: RFC 9562, method 3), 62 random.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))


def process_name() -> str:
    """Return a new name for what this process does: its host, its id and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def trace_id_of(run_id: str) -> str:
    """Return the trace id of a run: 32 hex digits, the same in every process."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]
