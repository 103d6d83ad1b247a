"""The content of a result as text for models and people, and as data for programs."""

from collections.abc import Sequence
from typing import Final

from mcp.types import BlobResourceContents, CallToolResult, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel

from mcp_gateway.sessions.large_message_parser import content_text
from starling.core.artifacts import Binary
from starling.core.json import JsonObject, canonical, storable, storable_text

_MOST_LINKS: Final = 100  # of one result


def data_of(result: CallToolResult) -> JsonObject | None:
    """Return the structured content in a form that can be stored, None where there is none."""
    if result.structuredContent is None:
        return None
    return {storable_text(key): storable(value) for key, value in result.structuredContent.items()}


def text_of(result: CallToolResult, data: JsonObject | None, binaries: list[Binary]) -> str:
    """Return all parts as text; binary ones are added to `binaries`, and named. Without parts, the data as JSON."""
    parts = (
        part.text if isinstance(part, TextContent) else content_text(_wire(part), binaries) for part in result.content
    )
    text = storable_text("\n".join(parts))
    return canonical(data) if not text and data is not None else text


def resource_links(result: CallToolResult) -> tuple[str, ...]:
    """Return the addresses of the resources that a result links to, in order."""
    links = (storable_text(str(part.uri)) for part in result.content if isinstance(part, ResourceLink))
    return tuple(dict.fromkeys(links))[:_MOST_LINKS]


def resource_text(contents: Sequence[TextResourceContents | BlobResourceContents], binaries: list[Binary]) -> str:
    """Return the contents of a resource as text; binary ones are added to `binaries`, and named."""
    parts = (content_text({"type": "resource", "resource": _wire(part)}, binaries) for part in contents)
    return storable_text("\n".join(parts))


def _wire(part: BaseModel) -> object:
    return part.model_dump(mode="json", by_alias=True)
