"""API keys: creating, checking and revoking them; requests end when their key is revoked or expires."""

import asyncio
import hmac
import json
import re
import secrets
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from starling.app.access.console_sessions import ConsoleSessions, hash_of
from starling.core.clock import Clock
from starling.core.errors import (
    DatabaseUnavailableError,
    ForbiddenError,
    InvalidRequestError,
    UnauthorizedError,
)
from starling.core.ids import new_id
from starling.core.principal import Principal, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.keys import ApiKey, KeyRepository, KeySpec

_KEY = re.compile(r"sk-starling-([0-9a-f]{32})-([A-Za-z0-9_-]{43})")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # never `*`, the name of what all tenants share
_SECRET_BYTES: Final = 32
_CACHE_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 2.0  # between two looks at the keys in use
_OTHER_KEY = "Call with another key of the tenant; `starling key create` makes one."
_ON_HOST = "An admin of the platform's machine may: `starling key create` there, or its local token."
_LIST = "`starling key list` shows the existing keys, `starling key create` makes one."


class KeyService:
    """Creates, checks and revokes the keys of all tenants. A key that was read is cached for two seconds.

    `sessions` are those of the console that were begun with keys.
    """

    def __init__(self, repository: KeyRepository, clock: Clock) -> None:
        self.sessions = ConsoleSessions(repository.sessions, self.of_id)
        self._repository = repository
        self._clock = clock
        self._found: dict[str, tuple[float, tuple[ApiKey, bytes]]] = {}
        self._any_active: tuple[float, bool] | None = None

    async def create(self, caller: Principal, spec: KeySpec, actor: Actor) -> tuple[ApiKey, str]:
        """Create a key: on the host any, else at most with what the caller's own key has.

        Return it, and the text that callers send, of which only the hash of the secret is stored.
        Raises InvalidRequestError, ForbiddenError, UnauthorizedError.
        """
        _check(spec)
        key_id, secret = new_id(), secrets.token_urlsafe(_SECRET_BYTES)
        self._any_active = None
        check = partial(_check_maker, caller, spec, self._clock.now())
        made = await self._repository.create(key_id, hash_of(secret), spec, actor, check)
        return made, f"sk-starling-{UUID(key_id).hex}-{secret}"

    async def every(self, caller: Principal, tenant: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or without one of all that a caller may see, oldest first.

        Raises ForbiddenError.
        """
        if caller.on_host or tenant in (None, caller.tenant):
            return await self._repository.every(tenant if caller.on_host else caller.tenant)
        raise ForbiddenError(f"Your key is of the tenant {caller.tenant!r}, not of {tenant!r}.", _ON_HOST)

    async def revoke(self, caller: Principal, key_id: str, actor: Actor) -> ApiKey:
        """Revoke a key that a caller may see. Raises NotFoundError."""
        return await self._repository.revoke(key_id, actor, None if caller.on_host else caller.tenant)

    async def authenticate(self, key: str) -> Principal:
        """Return the caller that a key belongs to. Raises UnauthorizedError, DatabaseUnavailableError."""
        parts = _KEY.fullmatch(key)
        if parts is None:
            remedy = "Keys begin with sk-starling-; `starling key create` makes one."
            raise UnauthorizedError("The bearer token is not a Starling key.", remedy)
        return (await self.of_id(str(UUID(parts[1])), hash_of(parts[2]))).principal

    async def of_id(self, key_id: str, secret_hash: bytes | None = None) -> ApiKey:
        """Return an active key, if its secret has this hash or none is given. Raises as `authenticate`."""
        now = self._clock.monotonic()
        read_at, found = self._found.get(key_id, (now, None))
        was_read = found is None or now - read_at > _CACHE_SECONDS
        if was_read and (found := await self._repository.find_with_hash(key_id)) is not None:
            self._found[key_id] = now, found
        if found is None or (secret_hash is not None and not hmac.compare_digest(found[1], secret_hash)):
            raise UnauthorizedError("This key does not exist.", _LIST)
        if found[0].state != "active":
            raise UnauthorizedError(f"The key {key_id} is {found[0].state}.", _LIST)
        if was_read:
            await self._repository.use(key_id)
        return found[0]

    def last_known(self, key: str) -> Principal | None:
        """Return whose key this was when this process last read it, None where it was not active or never read."""
        parts = _KEY.fullmatch(key)
        _, found = self._found.get(str(UUID(parts[1])), (0.0, None)) if parts else (0.0, None)
        if not parts or not found or found[0].state != "active" or not hmac.compare_digest(found[1], hash_of(parts[2])):
            return None
        return found[0].principal

    async def active(self, key_ids: Collection[str]) -> frozenset[str]:
        """Return those of the keys that are neither revoked nor expired."""
        return await self._repository.active(key_ids)

    async def any_active(self) -> bool:
        """Whether any key is active."""
        return await self._repository.any_active()

    async def any_active_lately(self) -> bool:
        """Whether any key was active at most two seconds ago."""
        now = self._clock.monotonic()
        if self._any_active is None or now - self._any_active[0] > _CACHE_SECONDS:
            self._any_active = now, await self._repository.any_active()
        return self._any_active[1]


class RevocationWatcher:
    """The requests that are being served, by key."""

    def __init__(self, keys: KeyService) -> None:
        self._keys = keys
        self._serving: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        self._in_use = asyncio.Event()

    @asynccontextmanager
    async def of(self, key_id: str) -> AsyncGenerator[None]:
        """Run the block; end it with UnauthorizedError once the key is revoked or has expired."""
        lifetime = asyncio.timeout(None)
        try:
            async with lifetime:
                serving = self._serving[key_id]
                serving.add(lifetime)
                self._in_use.set()
                try:
                    yield
                finally:
                    serving.discard(lifetime)
        except TimeoutError:
            if not lifetime.expired():
                raise
            raise UnauthorizedError(f"The key {key_id} was revoked or has expired.", _OTHER_KEY) from None

    async def watch(self) -> None:
        """Check the keys in use every two seconds, until cancelled."""
        while True:
            await self._in_use.wait()
            await asyncio.sleep(_CHECK_SECONDS)
            self._serving = defaultdict(set, {key: serving for key, serving in self._serving.items() if serving})
            if not self._serving:
                self._in_use.clear()
                continue
            with suppress(DatabaseUnavailableError):
                in_use = frozenset(self._serving)
                for key_id in in_use - await self._keys.active(in_use):
                    for lifetime in self._serving.pop(key_id):
                        lifetime.reschedule(0)  # in the past: it ends now


def _check_maker(caller: Principal, spec: KeySpec, now: datetime, own: ApiKey | None) -> None:
    """Raise UnauthorizedError, ForbiddenError unless a caller, whose key is `own`, may create a key."""
    if caller.on_host:
        return
    if own is None or own.state != "active":
        raise UnauthorizedError(f"The key {caller.key_id} was revoked or has expired.", _OTHER_KEY)
    if excess := _excess(own, spec, now):
        raise ForbiddenError(f"Your key can't give more than it has: {excess[0]}.", f"{excess[1]}{_ON_HOST}")


def _excess(own: ApiKey, spec: KeySpec, now: datetime) -> tuple[str, str] | None:
    """Return what of a new key its maker's own one doesn't have, and what to ask for instead; None without any."""
    grant = own.principal.grant
    if spec.tenant != own.tenant:
        return f"it is of the tenant {own.tenant!r}, not of {spec.tenant!r}", ""
    if lacking := sorted(spec.scopes.difference(own.scopes)):
        return f"it lacks the scopes {', '.join(lacking)}", f"Name `scopes` that it has: {', '.join(own.scopes)}. "
    if grant is not None and not grant.covers(spec.grant):
        return "its grant reaches less", f"Name a `grant` within yours: {json.dumps(own.grant)}. "
    if own.expires_at is not None and (spec.lifetime is None or now + spec.lifetime > own.expires_at):
        seconds = int((own.expires_at - now).total_seconds())
        at = own.expires_at.isoformat(timespec="seconds")
        return f"it expires at {at}", f"Name an `expires_in` of at most {seconds} seconds. "
    return None


def _check(spec: KeySpec) -> None:
    if not _TENANT.fullmatch(spec.tenant):
        raise InvalidRequestError(
            f"{spec.tenant!r} is not a tenant name.", "Use letters, digits, dots, dashes and underscores."
        )
    if not spec.name.strip() or not spec.name.isprintable():
        raise InvalidRequestError(
            f"{spec.name!r} is not a name for a key.", "Use printable characters, for example the name of its user."
        )
    if not spec.scopes:
        raise InvalidRequestError("A key needs a scope.", f"Scopes are: {', '.join(Scope)}.")
    if spec.grant and (wrong := [tool for tool in sorted(spec.grant.tools) if not all(tool.partition("."))]):
        raise InvalidRequestError(f"{wrong[0]!r} is not the full name of a tool.", "Write server.tool.")
    if spec.grant and (whole := [tool for tool in sorted(spec.grant.tools) if tool.endswith(".*")]):
        raise InvalidRequestError(f"{whole[0]!r} is not a tool.", "Grant the whole server instead.")
