"""Lists the tools of a server and checks everything that it sends."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp import McpError
from pydantic import ValidationError

from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.schemas.validation import schema_fault
from mcp_gateway.sessions.messages import UNREADABLE
from mcp_gateway.sessions.session import Session
from starling.core.errors import ServerUnavailableError
from starling.core.json import JsonObject, canonical, storable, storable_text

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 2_000
MAX_CHARS: Final = 4 * 2**20  # of all definitions together
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n\n")
_DESCRIPTION_CHARS = 300
_REMEDY = "Report it to the server's author, or take the server out of the configuration."


async def list_server(session: Session) -> Listed:
    """List all tools. Raises ServerUnavailableError, and stops the session, where an answer is not valid MCP."""
    try:
        return await _listed(session)
    except ServerUnavailableError:
        session.stop()
        raise


async def _listed(session: Session) -> Listed:
    try:
        documents = await _all_pages(session)
    except McpError as error:
        if error.error.code == UNREADABLE:
            raise _odd(session, f"its list of tools is unreadable: {error}") from None
        raise _odd(session, f"it refused to list its tools: {error}") from None
    except ValidationError:
        raise _odd(session, "its list of tools is not what MCP defines") from None
    kept, left_out = await asyncio.to_thread(_sorted_out, session, documents)  # thousands of tools take a while
    if left_out and not kept:
        raise _odd(session, f"none of its tools can be used: {'; '.join(left_out)}")
    return Listed(_description(session, kept), kept, tuple(left_out))


async def _all_pages(session: Session) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.page(cursor)
        documents += page.tools
        cursor = page.next_cursor
        if not cursor:
            return documents
        if len(documents) > MAX_TOOLS:
            break
    raise _odd(session, f"its list of tools doesn't end ({len(documents)} tools so far)")


def _sorted_out(session: Session, documents: Iterable[dict[str, Any]]) -> tuple[dict[str, JsonObject], list[str]]:
    kept: dict[str, JsonObject] = {}
    left_out: list[str] = []
    size = 0
    for document in documents:
        name = str(document.get("name"))
        definition = cast("JsonObject", storable(document))
        size += len(canonical(definition))
        if (fault := _fault(document)) is not None:
            left_out.append(f"{storable_text(name[:60])!r}: {fault}")
        elif name in kept:
            raise _odd(session, f"it lists the tool {name!r} twice")
        else:
            kept[name] = definition
    if len(kept) > MAX_TOOLS or size > MAX_CHARS:
        raise _odd(session, f"its list of tools is too big ({len(kept)} tools, {size:,} characters)")
    return kept, left_out


def _fault(document: Mapping[str, Any]) -> str | None:
    name = document.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 200 or storable(name) != name:
        return "it has no usable name"
    if not isinstance(document.get("description", ""), str):
        return "its description is no text"
    if (fault := schema_fault(document.get("inputSchema"))) is not None:
        return f"its inputSchema {fault}"
    if (output := document.get("outputSchema")) is not None and (fault := schema_fault(output)) is not None:
        return f"its outputSchema {fault}"
    return None


def _description(session: Session, tools: Mapping[str, JsonObject]) -> str:
    """Return the first paragraph of the server's instructions, else its title or name and what its tools say."""
    if session.info is None:
        return ""
    paragraph = (session.info.instructions or "").strip().split("\n\n")[0]
    title = session.info.serverInfo.title or session.info.serverInfo.name
    text = " ".join(paragraph.split()) or described_by_tools(title, tools)
    text = text if len(text) <= _DESCRIPTION_CHARS else text[:_DESCRIPTION_CHARS].rsplit(" ", 1)[0] + " …"
    return str(storable(text))


def described_by_tools(title: str, tools: Mapping[str, JsonObject]) -> str:
    """Return the title and the first sentence of each tool's description, or its name in words."""
    said = (str(definition.get("description") or "").strip() for definition in tools.values())
    sentences = [
        " ".join(_SENTENCE.split(text, maxsplit=1)[0].split()).rstrip(".")
        or " ".join(name.replace("-", "_").split("_"))
        for name, text in zip(tools, said, strict=True)
    ]
    return f"{title}: {'; '.join(sentences)}" if sentences else title


def _odd(session: Session, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(session.server, f"{reason}.", _REMEDY)
