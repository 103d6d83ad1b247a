"""Sessions of the console: a link with a one-time code begins one, and it ends with the key that it was begun with."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from starling.core.errors import ForbiddenError, UnauthorizedError
from starling.core.principal import LOCAL_REMEDY, Principal
from starling.infra.postgres.console_sessions import ConsoleSessionRepository
from starling.infra.postgres.keys import ApiKey

PREFIX: Final = "starling-session-"
_CODE_LIFETIME: Final = timedelta(seconds=60)
_LIFETIME: Final = timedelta(hours=12)
_SECRET_BYTES: Final = 32
_REMEDY: Final = "Log in again: `starling console` opens the console with a new link."


@dataclass(frozen=True, slots=True)
class ConsoleCode:
    """A code that begins one session, once, until `expires_at`."""

    code: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session that has begun; requests send `token` as their bearer token until `expires_at`."""

    token: str
    expires_at: datetime


class ConsoleSessions:
    """Begins, checks and ends sessions. One may do what its key may, and ends with it.

    `active_key` returns an active key by its id, or raises UnauthorizedError.
    """

    def __init__(self, repository: ConsoleSessionRepository, active_key: Callable[[str], Awaitable[ApiKey]]) -> None:
        self._repository = repository
        self._active_key = active_key

    async def new_code(self, caller: Principal) -> ConsoleCode:
        """Make a code for a caller with a key or the local token. Raises ForbiddenError."""
        if caller.keyless:
            raise ForbiddenError("A request without a key can't begin a session.", LOCAL_REMEDY)
        code = secrets.token_urlsafe(_SECRET_BYTES)
        return ConsoleCode(code, await self._repository.add("code", hash_of(code), caller, _CODE_LIFETIME))

    async def begin(self, code: str, admin: Callable[[], Principal]) -> ConsoleSession:
        """Begin the session of a code, which is used up. `admin` as in `authenticate`. Raises UnauthorizedError."""
        key_id = await self._repository.take_code(hash_of(code))
        if key_id is None:
            raise UnauthorizedError("The code was used already, or is older than 60 seconds.", _REMEDY)
        caller = await self._principal(key_id, admin)
        token = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        return ConsoleSession(token, await self._repository.add("session", hash_of(token), caller, _LIFETIME))

    async def authenticate(self, token: str, admin: Callable[[], Principal]) -> Principal:
        """Return the caller of a session. `admin` returns the admin of the machine, or refuses where none may call.

        Raises UnauthorizedError.
        """
        if (session := await self._repository.session(hash_of(token))) is None:
            raise UnauthorizedError("The session has ended.", _REMEDY)
        return await self._principal(session[0], admin)

    async def ends_at(self, token: str) -> datetime | None:
        """Return when a session ends, None for a token that is none."""
        session = await self._repository.session(hash_of(token))
        return session and session[1]

    async def end(self, token: str) -> None:
        """End a session; one that has ended stays so."""
        await self._repository.end(hash_of(token))

    async def _principal(self, key_id: str, admin: Callable[[], Principal]) -> Principal:
        return (await self._active_key(key_id)).principal if key_id else admin()


def hash_of(secret: str) -> bytes:
    """Hash with SHA-256: a slow hash is of no use, as 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).digest()
