"""Ids: uuidv7 (RFC 9562), made in the application, so that they sort by time and need no round trip."""

import hashlib
import os
import time
import uuid


def new_id() -> str:
    """Return a new uuidv7 in its canonical text form: 48 bits of milliseconds, 74 random ones."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high, low = random >> 68 & 0xFFF, random & (1 << 62) - 1
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def trace_id_of(run_id: str) -> str:
    """Return the trace id of a run: 32 hex digits, the same in every process."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]
