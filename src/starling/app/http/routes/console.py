"""The console: its files, and the sessions of browsers."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from pydantic import Field
from starlette.staticfiles import StaticFiles

import starling
from starling.app.access.console_sessions import PREFIX, ConsoleCode, ConsoleSession
from starling.app.http.app_state import FromAppState, OptionalCaller
from starling.app.http.dependencies import AnyCaller, FromServices
from starling.app.http.problems import refusals
from starling.app.http.schemas import ClosedModel
from starling.core.errors import ForbiddenError
from starling.core.principal import Scope

router = APIRouter(tags=["console"])

_FILES: Final = StaticFiles(directory=Path(starling.__file__).parent / "console", check_dir=False)
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_FOREVER: Final = "public, max-age=31536000, immutable"  # names of assets have the hash of their content
_NOT_BUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Starling</title>
<h1>The console was not built</h1>
<p>This is a checkout. <code>make console</code> builds the console into it; installed packages have it.</p>
</html>
"""


class SessionCode(ClosedModel):
    """The code of a link to the console."""

    code: Annotated[str, Field(max_length=200)]


@dataclass(frozen=True, slots=True)
class SessionCaller:
    """Who a page acts as: its tenant, what it may do, and the key's id and name, empty without a key.

    `expires_at` is when its session or its key ends, whichever is first.
    """

    tenant: str
    scopes: list[Scope]
    key_id: str
    name: str
    on_host: bool
    expires_at: datetime | None


@router.post("/v1/console/codes", status_code=201, summary="Make a link's code", responses=refusals(403, 503))
async def new_code(caller: AnyCaller, request: Request, services: FromServices, response: Response) -> ConsoleCode:
    """Make a code that begins one session of the console, once, within 60 seconds; the session acts as your key."""
    if _bearer(request).startswith(PREFIX):
        raise ForbiddenError("A session can't begin another one.", "Use `starling console` or a key.")
    response.headers["Cache-Control"] = "no-store"
    return await services.storage.keys.sessions.new_code(caller)


@router.post("/v1/console/sessions", status_code=201, summary="Begin a session", responses=refusals(401, 422, 503))
async def begin(
    wanted: SessionCode, _: OptionalCaller, request: Request, api: FromAppState, response: Response
) -> ConsoleSession:
    """Exchange a code for a session token, which is sent as a key is. It ends after twelve hours, or with its key."""
    response.headers["Cache-Control"] = "no-store"
    return await api.storage.keys.sessions.begin(wanted.code, request.state.admin)


@router.get("/v1/console/session", summary="Who am I?", responses=refusals(503))
async def show(caller: AnyCaller, request: Request, services: FromServices) -> SessionCaller:
    """Return who the request acts as, by a session, a key, the local token, or none of them."""
    key = await services.storage.keys.of_id(caller.key_id) if caller.key_id else None
    name, key_ends = (key.name, key.expires_at) if key else ("", None)
    ends = [end for end in (key_ends, await services.storage.keys.sessions.ends_at(_bearer(request))) if end]
    return SessionCaller(
        caller.tenant, sorted(caller.scopes), caller.key_id, name, caller.on_host, min(ends, default=None)
    )


@router.delete("/v1/console/session", status_code=204, summary="End the session", responses=refusals(503))
async def end(_: AnyCaller, request: Request, services: FromServices) -> None:
    """End the session whose token the request has; keys stay as they are."""
    await services.storage.keys.sessions.end(_bearer(request))


def _bearer(request: Request) -> str:
    return request.headers.get("authorization", "").partition(" ")[2].strip()


@router.get("/console", include_in_schema=False)
@router.get("/console/{path:path}", include_in_schema=False)
def file(_: OptionalCaller, path: str = "") -> Response:
    """Return a file of the console; each address that is none is a page, which the console itself reads."""
    found, status = _FILES.lookup_path(path) if path else ("", None)
    if status is not None and Path(found).is_file():
        caching = _FOREVER if path.startswith("assets/") else "no-cache"
        return FileResponse(found, headers={**_HEADERS, "Cache-Control": caching})
    if (page := Path(str(_FILES.directory)) / "index.html").is_file() and not path.startswith("assets/"):
        return FileResponse(page, headers={**_HEADERS, "Cache-Control": "no-cache"})
    return HTMLResponse(_NOT_BUILT, status_code=404, headers=_HEADERS)
