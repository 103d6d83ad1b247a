"""Authentication before any route, and the scopes that routes require."""

import asyncio
import hmac
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, cast

from fastapi import Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from starling.app.access import console_sessions
from starling.app.access.keys import KeyService, RevocationWatcher
from starling.app.access.local_token import PREFIX
from starling.app.http.loopback_policy import is_loopback, keyless_refusal, refuse_open_binding
from starling.app.http.problems import EndableResponse
from starling.app.http.rate_limit import RateLimit, WrongKeyLimit, address_of
from starling.core.background_tasks import ignore_failure, in_background
from starling.core.clock import SystemClock
from starling.core.errors import DatabaseUnavailableError, ForbiddenError, StarlingError, UnauthorizedError
from starling.core.principal import DEFAULT_TENANT, HOST_ADMIN, LOCAL_REMEDY, Principal, Scope
from starling.core.settings.schema import Settings

KEYLESS: Final = Principal(DEFAULT_TENANT, key_id="", scopes=frozenset(Scope) - {Scope.ADMIN})
BEGIN_SESSION: Final = "/v1/console/sessions"
OPEN: Final = frozenset({"/", "/health", "/ready", BEGIN_SESSION})  # paths that need no key; admins get more details
_CONSOLE: Final = "/console"  # the files of the console, which hold no data
_MONITOR_SECONDS: Final = 0.4
MONITORED: Final = frozenset({"/metrics"})  # paths that report outages of Postgres, so that keys can't depend on it

_UNQUERIED: Final = OPEN - {"/ready"}  # answered without the database, which authentication may need
_ADMIN_REMEDY = f"{LOCAL_REMEDY.removesuffix('.')} with the scope `admin`."
_REMEDY = "Send `Authorization: Bearer <key>`; `starling key create` makes one."


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What authentication uses: keys, their revocation, rate limits, and who on this machine needs no key.

    `keyless` allows requests without a key while no key is active; `token` is the local token, empty where none counts.
    Unknown keys from addresses that sent too many wrong ones are looked up one at a time, by `lookup`. `proxies` are
    trusted with the addresses of their clients.
    """

    keys: KeyService
    revocations: RevocationWatcher
    rate: RateLimit
    wrong_keys: WrongKeyLimit
    keyless: bool
    token: str = ""
    proxies: Sequence[str] = ()
    lookup: asyncio.Lock = field(default_factory=asyncio.Lock)


@asynccontextmanager
async def open_access_control(settings: Settings, keys: KeyService, token: str = "") -> AsyncGenerator[AccessControl]:
    """Yield the access control for as long as the context lasts; `token` is that of the data folder.

    Raises ConfigurationError where other machines could reach the API and no key is active.
    """
    await refuse_open_binding(settings.host, keys)
    rate = RateLimit(settings.rate_per_minute, SystemClock())
    wrong_keys = WrongKeyLimit(settings.wrong_keys_per_minute, SystemClock())
    revocations = RevocationWatcher(keys)
    async with in_background(revocations.watch(), "watch-keys"):
        keyless = not settings.require_keys and is_loopback(settings.host)
        counting = "" if settings.require_keys else token
        yield AccessControl(keys, revocations, rate, wrong_keys, keyless, counting, settings.trusted_proxies)


class AuthenticationMiddleware:
    """Adds the principal to each request, none on open paths; answers others with 401 or 429.

    A request ends when its key is revoked or expires, also in the middle of a stream.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with the reason."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = EndableResponse(scope, receive, send)
        try:
            state = scope.setdefault("state", {})
            state["admin"] = admin = partial(admin_of_host, scope, self._access.token)
            state["principal"] = principal = await self._principal(scope, admin)
            if principal is None or not principal.key_id:
                await self._app(scope, receive, send)
                return
            async with self._access.revocations.of(principal.key_id):
                await self._app(scope, receive, answer.send)
        except StarlingError as error:
            await answer.end(error)

    async def _principal(self, scope: Connection, admin: Callable[[], Principal]) -> Principal | None:
        credentials = Headers(scope=scope).get("authorization")
        if credentials is None:
            return await self._keyless(scope)
        scheme, _, key = credentials.partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthorizedError("The Authorization header holds no bearer token.", _REMEDY)
        address = address_of(scope, self._access.proxies)
        try:
            if key.strip().startswith(PREFIX):
                return self._of_local_token(key.strip(), admin)
            if key.strip().startswith(console_sessions.PREFIX):
                return await self._of_session(key.strip(), admin)
            return await self._of_key(key.strip(), address, scope["path"])
        except UnauthorizedError:
            self._access.wrong_keys.count(address)
            raise

    async def _of_key(self, key: str, address: str, path: str) -> Principal:
        known = self._access.keys.last_known(key)
        if known is not None and path in MONITORED:
            principal = await self._monitor(key) or known
        else:
            one_at_a_time = known is None and self._access.wrong_keys.is_used_up(address)
            # a flood of wrong keys then takes one connection to Postgres at most
            async with self._access.lookup if one_at_a_time else nullcontext():
                principal = await self._access.keys.authenticate(key)
        self._access.rate.take(principal.key_id)
        return principal

    async def _monitor(self, key: str) -> Principal | None:
        """Return the caller that a key belongs to, None where Postgres doesn't say so at once."""
        check = asyncio.get_running_loop().create_task(self._access.keys.authenticate(key), name="check-key")
        check.add_done_callback(ignore_failure)
        if not (await asyncio.wait({check}, timeout=_MONITOR_SECONDS))[0]:
            return None
        with suppress(DatabaseUnavailableError):
            return check.result()
        return None

    async def _of_session(self, token: str, admin: Callable[[], Principal]) -> Principal:
        principal = await self._access.keys.sessions.authenticate(token, admin)
        if principal.key_id:
            self._access.rate.take(principal.key_id)
        return principal

    def _of_local_token(self, token: str, admin: Callable[[], Principal]) -> Principal:
        principal = admin()
        if not hmac.compare_digest(self._access.token.encode(), token.encode()):
            raise UnauthorizedError("This is not the local token of this platform, or it needs a key.", _ADMIN_REMEDY)
        return principal

    async def _keyless(self, scope: Connection) -> Principal | None:
        if scope["path"] in _UNQUERIED or scope["path"].startswith(_CONSOLE):
            return None
        reason = keyless_refusal(scope) if self._access.keyless else "The API needs a key."
        if not reason and await self._access.keys.any_active_lately():
            reason = "The API needs a key, because keys were created."
        if not reason:
            return KEYLESS
        if scope["path"] in OPEN:
            return None
        raise UnauthorizedError(reason, _REMEDY)


def admin_of_host(scope: Connection, token: str) -> Principal:
    """Return the admin of this machine, if the request comes from it and the local `token` counts here.

    Raises UnauthorizedError.
    """
    if reason := keyless_refusal(scope):
        raise UnauthorizedError(reason, _REMEDY)
    if not token:
        raise UnauthorizedError("This is not the local token of this platform, or it needs a key.", _ADMIN_REMEDY)
    return HOST_ADMIN


class PrincipalMiddleware:
    """Makes every request that of one principal, for calls within the process."""

    def __init__(self, app: ASGIApp, principal: Principal) -> None:
        self._app = app
        self._principal = principal

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        scope.setdefault("state", {})["principal"] = self._principal
        await self._app(scope, receive, send)


_BEARER = HTTPBearer(auto_error=False, description="A key that `starling key create` made.")


class RequireScope:
    """The scopes of which a route requires one."""

    def __init__(self, *scopes: Scope) -> None:
        self.scopes = frozenset(scopes)

    async def __call__(self, request: Request, _: Annotated[object, Security(_BEARER)]) -> Principal:
        """Return the caller. Raises ForbiddenError."""
        principal = await optional_caller(request)
        if principal is None:
            raise UnauthorizedError("This route needs a key.", _REMEDY)
        require(principal, *self.scopes)
        return principal


def require(principal: Principal, *scopes: Scope) -> None:
    """Raise UnauthorizedError or ForbiddenError unless the caller has one of these scopes."""
    if principal.scopes.intersection(scopes):
        return
    wanted = " or ".join(repr(scope.value) for scope in sorted(scopes))
    if not principal.key_id:
        raise UnauthorizedError(f"A request without a key lacks the scope {wanted}.", _ADMIN_REMEDY)
    raise ForbiddenError(
        f"The key {principal.key_id} lacks the scope {wanted}.",
        "Use another key; `starling key create --scope` makes one.",
    )


async def optional_caller(request: Request) -> Principal | None:
    """Return the caller, None where an open path was called without a key."""
    return cast("Principal | None", request.state.principal)
