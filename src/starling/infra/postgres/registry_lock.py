"""The lock of the registry: epochs, versions of teams and names of builds change one at a time."""

from typing import Final

LOCK_REGISTRY: Final = "SELECT pg_advisory_xact_lock(hashtext('starling.epochs'))"
"""Holds the lock until its transaction ends. It is taken before any row is locked."""
