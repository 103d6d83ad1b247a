"""Starts servers to list their tools, and checks everything that they send."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from mcp import McpError
from pydantic import ValidationError

from mcp_gateway.configuration.address_rules import PUBLIC_ONLY, AddressRules
from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.listing_schedule import AT_ONCE, start_seconds
from mcp_gateway.registration.tool_names import alias_of, collisions, name_fault, shown
from mcp_gateway.schemas.validation import schema_fault
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.isolation import PrivateFiles
from mcp_gateway.sessions.messages import UNREADABLE
from mcp_gateway.sessions.pool import SessionPool
from mcp_gateway.sessions.session import Session
from starling.core.errors import ServerUnavailableError
from starling.core.json import JsonObject, canonical, storable, strings_in
from starling.core.json_schemas.subschemas import reference_fault
from starling.core.settings.schema import Limits
from starling.core.text_screening import has_hidden

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 2_000
MAX_CHARS: Final = 4 * 2**20  # of all definitions together
_log = logging.getLogger(__name__)
_REMEDY = "Report it to the server's author, or take the server out of the configuration."


async def list_server(session: Session, approved: Collection[str] = ()) -> Listed:
    """List all tools by what agents call them; of names that look alike, one that is `approved` is kept.

    Raises ServerUnavailableError, and stops the session, where an answer is not valid MCP.
    """
    try:
        documents = await _all_pages(session)
        # thousands of tools take a while
        kept, left_out = await asyncio.to_thread(_sorted_out, session, documents, approved)
        if left_out and not kept:
            raise _odd(session, f"none of its tools can be used: {'; '.join(left_out)}")
    except McpError as error:
        session.stop()
        what = "its list of tools is unreadable" if error.error.code == UNREADABLE else "it refused to list its tools"
        raise _odd(session, f"{what}: {error}") from None
    except ValidationError:
        session.stop()
        raise _odd(session, "its list of tools is not what MCP defines") from None
    except ServerUnavailableError:
        session.stop()
        raise
    description, title, refused = await asyncio.to_thread(_about, session)
    return Listed(description, kept, (*left_out, *refused), title)


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


def _sorted_out(
    session: Session, documents: Sequence[dict[str, Any]], approved: Collection[str]
) -> tuple[dict[str, JsonObject], list[str]]:
    definitions = [cast("JsonObject", storable(document)) for document in documents]
    size = sum(len(canonical(definition)) for definition in definitions)
    if len(documents) > MAX_TOOLS or size > MAX_CHARS:
        raise _odd(session, f"its list of tools is too big ({len(documents)} tools, {size:,} characters)")
    usable: list[JsonObject] = []
    left_out: list[str] = []
    for document, definition in zip(documents, definitions, strict=True):
        if fault := name_fault(document.get("name")) or _fault(document):
            left_out.append(f"{shown(document.get('name'))}: {fault}")
        else:
            usable.append(definition)
    names = [str(definition["name"]) for definition in usable]
    alike = collisions(names, approved)
    left_out += dict.fromkeys(f"{shown(names[position])}: {fault}" for position, fault in sorted(alike.items()))
    return {
        alias_of(name): definition
        for position, (name, definition) in enumerate(zip(names, usable, strict=True))
        if position not in alike
    }, left_out


def _fault(document: Mapping[str, Any]) -> str | None:
    if not isinstance(document.get("description") or "", str):
        return "its description is not a string"
    for name in ("inputSchema", "outputSchema"):
        schema = document.get(name)
        if schema is None and name == "outputSchema":
            continue
        if fault := schema_fault(schema) or reference_fault(cast("JsonObject", schema)):
            return f"its {name} {fault}"
    if "\0" in "".join(
        strings_in(cast("JsonObject", document))
    ):  # which can't be stored, and so not be shown to who approves it
        return "a text of it has the character NUL"
    return None


def _about(session: Session) -> tuple[str, str, list[str]]:
    """Return the first paragraph of the server's instructions, its title, and why one of them isn't shown."""
    if (info := session.info) is None:
        return "", session.server, []
    said = {"instructions": info.instructions or "", "title": info.serverInfo.title or info.serverInfo.name}
    refused = [kind for kind, text in said.items() if has_hidden(text)]
    said |= {kind: text for kind, text in (("instructions", ""), ("title", session.server)) if kind in refused}
    paragraph = " ".join(said["instructions"].strip().split("\n\n")[0].split())
    return paragraph, said["title"], [f"its {kind}: it has characters that aren't shown" for kind in refused]


def _odd(session: Session, reason: str) -> ServerUnavailableError:
    return ServerUnavailableError(session.server, f"{reason}.", _REMEDY)


_LATER = 0.5  # seconds for the session's own time limit, which knows more, to be first


async def list_once(sessions: SessionPool, name: str, config: ServerConfig, seconds: float) -> Listed:
    """Start a server, list its tools and stop it, within so many seconds. Raises ServerUnavailableError."""
    why = ""
    if seconds > sessions.start_seconds:
        _log.info("MCP server %s has %g s for its first start: its command may download it", name, seconds)
        why = f" It had {seconds:g} s since it may have been downloading."
    session = sessions.open_new(name, config, seconds)
    limit = asyncio.timeout(seconds + _LATER)
    try:
        async with limit:
            return await list_server(session)
    except TimeoutError:
        reason = f"it didn't start and list its tools within {seconds:g} s.{why}"
        raise ServerUnavailableError(name, reason, "Start it by hand to see what takes it so long.") from None
    except ServerUnavailableError as error:
        if why and asyncio.get_running_loop().time() + _LATER >= (limit.when() or 0):
            raise ServerUnavailableError(name, f"{error.reason}{why}", error.remedy) from None
        raise
    finally:
        session.stop()


async def try_servers(
    config: McpConfig,
    limits: Limits,
    environment: Mapping[str, str],
    private: PrivateFiles,
    addresses: AddressRules = PUBLIC_ONLY,
) -> Mapping[str, Listed | ServerUnavailableError]:
    """Return what each server offers, or why it can't be used. Nothing is stored, and nothing is left running."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def tried(name: str) -> Listed | ServerUnavailableError:
        try:
            async with slots:
                return await list_once(sessions, name, config[name], start_seconds(config[name], limits))
        except ServerUnavailableError as error:
            return error

    async with SessionPool(limits, environment, CheckedConnections(addresses), private) as sessions:
        return dict(zip(config, await asyncio.gather(*map(tried, config)), strict=True))
