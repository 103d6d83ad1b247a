"""The page at `/`: what answers here, its state, and where to go."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from starling.app.http.app_state import FromAppState, OptionalCaller

router = APIRouter(tags=["health"])

_SUMMARY = "Starling makes a specialist agent of each MCP server and lets them solve your requests together."
_LINKS = {
    "docs": ("/docs", "The API, with every field"),
    "openapi": ("/openapi.json", "The same for programs"),
    "ready": ("/ready", "Whether it can take work"),
    "health": ("/health", "Whether the process answers"),
}
_EXAMPLE = "starling ask 'How full is this disk?'"
_ACCESS = (
    "Other requests from this machine need none either while there is no key; once there is one, and always from other "
    "machines, send <code>Authorization: Bearer &lt;key&gt;</code>: <code>starling key create</code> makes keys. Admin "
    "requests need a key with the scope <code>admin</code>, or the content of the file <code>token</code> in the data "
    "folder, which <code>starling status</code> names."
)
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "Vary": "Accept"}
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Starling</title>
<style>body{{font:16px/1.5 sans-serif;max-width:40em;margin:3em auto;padding:0 1em}}code{{background:#eee}}</style>
<h1>Starling</h1>
<p>{summary}</p>
<p>This platform is <b>{state}</b>.</p>
<ul>{links}</ul>
<p>Ask it from a terminal: <code>{example}</code>, or <code>POST /v1/agent/run</code>.
<code>starling status</code> shows more.</p>
<p>Commands on this machine need no key. {access}</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class StartPage:
    """What this is, its state, and the addresses of documentation and checks."""

    name: Literal["Starling"]
    summary: str
    state: Literal["ready", "stopping"]
    links: dict[str, str]
    example: str


@router.get(
    "/",
    summary="What is this?",
    response_model=StartPage,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def start_page(request: Request, api: FromAppState, _: OptionalCaller) -> Response:
    """Return a page for browsers and JSON for programs; it holds no data of tenants and needs no key."""
    state = "stopping" if api.draining else "ready"
    if "text/html" not in request.headers.get("accept", ""):
        addresses = {name: path for name, (path, _) in _LINKS.items()}
        return JSONResponse(asdict(StartPage("Starling", _SUMMARY, state, addresses, _EXAMPLE)), headers=_HEADERS)
    links = "".join(f'<li><a href="{path}">{escape(text)}</a>' for path, text in _LINKS.values())
    page = _PAGE.format(summary=_SUMMARY, access=_ACCESS, state=state, links=links, example=escape(_EXAMPLE))
    return HTMLResponse(page, headers=_HEADERS)
