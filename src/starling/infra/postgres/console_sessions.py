"""Sessions of the console in Postgres, and the codes that begin them; expired rows are deleted with the next one."""

from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import delete, func, insert, select

from starling.core.principal import Principal
from starling.infra.postgres.engine import Repository
from starling.infra.postgres.tables.access import console_sessions

type Kind = Literal["code", "session"]

_FOUND: Final = (console_sessions.c.tenant, console_sessions.c.key_id)
_VALID: Final = console_sessions.c.expires_at > func.now()


class ConsoleSessionRepository(Repository):
    """Rows by the SHA-256 of the text that a browser sends. Raises DatabaseUnavailableError."""

    async def add(self, kind: Kind, digest: bytes, caller: Principal, lifetime: timedelta) -> datetime:
        """Store a code or a session of a caller, and return when it ends."""
        new = insert(console_sessions).values(
            tenant=caller.tenant,
            hash=digest,
            kind=kind,
            key_id=caller.key_id or None,
            expires_at=func.now() + lifetime,
        )
        async with self.changing() as connection:
            await connection.execute(delete(console_sessions).where(~_VALID))
            return (await connection.execute(new.returning(console_sessions.c.expires_at))).scalar_one()

    async def take_code(self, digest: bytes) -> str | None:
        """Delete a code and return the key that it was made with, empty for the machine's admin; None: not valid."""
        used = delete(console_sessions).where(
            console_sessions.c.hash == digest, console_sessions.c.kind == "code", _VALID
        )
        async with self.changing() as connection:
            row = (await connection.execute(used.returning(*_FOUND))).one_or_none()
        return None if row is None else row.key_id or ""

    async def session(self, digest: bytes) -> tuple[str, datetime] | None:
        """Return the key of a session, empty for the machine's admin, and when it ends; None where it has."""
        columns = (*_FOUND, console_sessions.c.expires_at)
        query = select(*columns).where(console_sessions.c.hash == digest, console_sessions.c.kind == "session", _VALID)
        async with self.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else (row.key_id or "", row.expires_at)

    async def end(self, digest: bytes) -> None:
        """Delete a session."""
        async with self.changing() as connection:
            await connection.execute(delete(console_sessions).where(console_sessions.c.hash == digest))
