"""What the repositories of the registry share: its lock, and the definitions of tools by the hashes of their pins."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from starling.core.principal import SHARED

# One array for each column: a list of thousands of rows exceeds the depth and the parameters that a statement may have.
_PINNED = text("""
SELECT tools.server, tools.name, tools.definition
FROM unnest(CAST(:servers AS text[]), CAST(:names AS text[]), CAST(:hashes AS text[])) AS pin (server, name, hash)
JOIN tools ON tools.tenant = :tenant AND (tools.server, tools.name, tools.hash) = (pin.server, pin.name, pin.hash)""")


async def pinned_definitions(
    connection: AsyncConnection, pins: Iterable[tuple[str, str, str]]
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the definitions by server and name; a pin is a server, the name of a tool and a hash."""
    if not (pinned := [*pins]):
        return {}
    servers, names, hashes = zip(*pinned, strict=True)
    values = {"tenant": SHARED, "servers": [*servers], "names": [*names], "hashes": [*hashes]}
    found = await connection.execute(_PINNED, values)
    return {(row.server, row.name): row.definition for row in found}


LOCK_REGISTRY: Final = "SELECT pg_advisory_xact_lock(hashtext('starling.epochs'))"
"""Holds the lock until its transaction ends. It is taken before any row is locked."""
