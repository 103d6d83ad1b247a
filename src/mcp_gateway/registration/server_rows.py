"""Rows of servers as they are made of answers, and listings as they are made of rows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.registration.effective_config import row_faults
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.pins import Occasion
from mcp_gateway.registration.repository import Definitions, ServerRow
from starling.core.errors import ServerUnavailableError
from starling.core.json import JsonObject, storable_text
from starling.core.tools import ServerListing, ServerSource, ToolDefinition, own_name_of

_NO_ADDRESS: Final = frozenset({"headers", "disabled", "x-starling"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The row of a server that was asked for its tools, and these; None where it could not be listed."""

    row: ServerRow
    config: ServerConfig
    listed: Listed | None


def with_kept_settings(answer: Answer, stored: ServerRow | None) -> Answer:
    """Return a server as it was listed with the settings of its tools that are stored: a file doesn't change them."""
    if stored is None:
        return answer
    return replace(answer, row=replace(answer.row, tool_settings=stored.tool_settings))


def occasion_of(answer: Answer, row: ServerRow | None) -> Occasion:
    """Return the occasion of a listing that a file or a person asked for."""
    first = row is None or row.state == "degraded"
    moved = answer.row.source == "api" and (row is None or _address_of(row) != _address_of(answer.row))
    return Occasion(answer.config.options.pins, answer.row.source, first=first, moved=moved)


def _address_of(row: ServerRow) -> JsonObject:
    """Return what of a configuration says which server it is: all but headers and settings of the platform."""
    return {key: value for key, value in row.config.items() if key not in _NO_ADDRESS}


def is_ready(answer: Answer) -> bool:
    return answer.row.state == "ready"


def source_of(row: ServerRow, known: Mapping[str, ServerRow], source: ServerSource) -> ServerSource:
    """Return the source of a listed server: a document over HTTP changes that of new and changed ones only."""
    before = known.get(row.name)
    is_same = before is not None and before.config_hash == row.config_hash
    return before.source if before is not None and is_same and source == "api" else source


def taken_over(config: McpConfig, asked: McpConfig, known: Mapping[str, ServerRow], source: ServerSource) -> list[str]:
    """Return the unchanged servers that came over HTTP and are in a file now."""
    if source != "file":
        return []
    return [name for name in config.keys() - asked.keys() if name in known and known[name].source == "api"]


def degraded(name: str, config: ServerConfig, error: ServerUnavailableError) -> Answer:
    row = ServerRow(
        name=name,
        config=config.document,
        config_hash=config.hash,
        source="file",
        state="degraded",
        description=config.options.description,
        tools={},
        error=storable_text(error.reason),
        remedy=storable_text(error.remedy),
    )
    return Answer(row, config, None)


def ready(name: str, config: ServerConfig, listed: Listed, source: ServerSource) -> ServerRow:
    faults = listed.faults(config.options)
    return ServerRow(
        name=name,
        config=config.document,
        config_hash=config.hash,
        source=source,
        state="ready",
        description=config.options.description or listed.description,
        tools={},
        error=" ".join(fault for fault, _ in faults),
        remedy=" ".join(remedy for _, remedy in faults),
    )


def listing_of(row: ServerRow, config: ServerConfig, definitions: Definitions) -> ServerListing:
    tools = (
        ToolDefinition(
            server=row.name,
            name=tool,
            description=definitions[row.name, tool].get("description") or "",
            input_schema=definitions[row.name, tool]["inputSchema"],
            output_schema=definitions[row.name, tool].get("outputSchema"),
            effect=config.options.effect_of(tool),
            hash=pin,
            own_name=own_name_of(tool, definitions[row.name, tool]),
        )
        for tool, pin in sorted(row.tools.items())
    )
    error, remedy = row_faults(row)
    return ServerListing(
        name=row.name,
        description=row.description,
        config_hash=row.config_hash,
        state=row.state,
        tools=tuple(tools),
        error=error,
        remedy=remedy,
        quarantined=row.quarantined,
    )
