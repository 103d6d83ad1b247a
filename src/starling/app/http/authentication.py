"""From a request to its principal, before any route; and what routes ask of principals."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from starling.app.access.key_revocation import RevocationWatcher, watch_revocations
from starling.app.access.keys import KeyService
from starling.app.http.loopback_policy import keyless_refusal, refuse_open_binding
from starling.app.http.problems import problem_of
from starling.app.http.rate_limit import RateLimit
from starling.core.clock import SystemClock
from starling.core.errors import ForbiddenError, StarlingError, UnauthorizedError
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.core.settings import Settings

KEYLESS: Final = Principal(DEFAULT_TENANT, key_id="", scopes=frozenset(Scope))
OPEN: Final = frozenset({"/health", "/ready"})  # paths that anybody may ask; what they tell depends on who does

_REMEDY = "Send `Authorization: Bearer sk-starling-…`, or call from Starling's own machine, as http://localhost."
_LAST_WORD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What decides who is let in, and for how long."""

    keys: KeyService
    revocations: RevocationWatcher
    rate: RateLimit
    require_keys: bool


@asynccontextmanager
async def open_access_control(settings: Settings, keys: KeyService) -> AsyncGenerator[AccessControl]:
    """Give what lets people in, for as long as the context lasts.

    Raises ConfigurationError where other machines could reach us and nobody has a key.
    """
    await refuse_open_binding(settings.host, keys)
    rate = RateLimit(settings.rate_per_minute, SystemClock())
    async with watch_revocations(keys) as revocations:
        yield AccessControl(keys, revocations, rate, settings.require_keys)


class AuthenticationMiddleware:
    """Lets requests in with a principal or, on open paths, without; answers others with 401 or 429.

    A request with a key ends when its key does, also in the middle of a stream.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with the reason."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            principal = await self._principal(scope)
            scope.setdefault("state", {})["principal"] = principal
            if principal is None or not principal.key_id:
                await self._app(scope, receive, send)
                return
            async with self._access.revocations.of(principal.key_id):
                await self._app(scope, receive, answer)
        except StarlingError as error:
            await answer.break_off(scope, receive, error)

    async def _principal(self, scope: Connection) -> Principal | None:
        credentials = Headers(scope=scope).get("authorization")
        if credentials is None:
            return self._keyless(scope)
        scheme, _, key = credentials.partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthorizedError("The Authorization header shows no bearer key.", _REMEDY)
        principal = await self._access.keys.authenticate(key.strip())
        self._access.rate.take(principal.key_id)
        return principal

    def _keyless(self, scope: Connection) -> Principal | None:
        reason = "Starling answers nobody without a key." if self._access.require_keys else keyless_refusal(scope)
        if not reason:
            return KEYLESS
        if scope["path"] in OPEN:
            return None
        raise UnauthorizedError(reason, _REMEDY)


class _Answer:
    """An answer that may have to end before its time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._ended = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def break_off(self, scope: Connection, receive: Receive, error: StarlingError) -> None:
        """Answer with the error, or close the stream that has begun; a reader who takes nothing is left alone."""
        if not self._begun:
            await problem_of(error)(scope, receive, self._send)
        elif not self._ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await self._send({"type": "http.response.body", "body": b"", "more_body": False})


_BEARER = HTTPBearer(auto_error=False, description="A key that `starling key create` made.")


@dataclass(frozen=True, slots=True)
class RequireScope:
    """What a route asks of its callers: a scope."""

    scope: Scope

    async def __call__(self, request: Request, _: Annotated[object, Security(_BEARER)]) -> Principal:
        """Return the caller. Raises ForbiddenError."""
        principal = await optional_caller(request)
        if principal is None:
            raise UnauthorizedError("This needs a key.", _REMEDY)
        if self.scope not in principal.scopes:
            raise ForbiddenError(
                f"The key {principal.key_id} hasn't the scope {self.scope.value!r}.",
                "Use another key, or have one made with `starling key create`.",
            )
        return principal


async def optional_caller(request: Request) -> Principal | None:
    """Return the caller of an open path, None for one who is nobody's."""
    return cast("Principal | None", request.state.principal)
