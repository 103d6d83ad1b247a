"""The content of a result as text for models and people, and as data for programs."""

from collections.abc import Sequence
from typing import Final, assert_never

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from starling.core.json import JsonObject, canonical, storable, storable_text

_MOST_LINKS: Final = 100  # of one result


def data_of(result: CallToolResult) -> JsonObject | None:
    """Return the structured content in a form that can be stored, None where there is none."""
    if result.structuredContent is None:
        return None
    return {storable_text(key): storable(value) for key, value in result.structuredContent.items()}


def text_of(result: CallToolResult, data: JsonObject | None) -> str:
    """Return all parts as text; what isn't text is named with its kind and size. Without parts, the data as JSON."""
    text = storable_text("\n".join(_shown(part) for part in result.content))
    return canonical(data) if not text and data is not None else text


def resource_links(result: CallToolResult) -> tuple[str, ...]:
    """Return the addresses of the resources that a result links to, in order."""
    links = (storable_text(str(part.uri)) for part in result.content if isinstance(part, ResourceLink))
    return tuple(dict.fromkeys(links))[:_MOST_LINKS]


def resource_text(contents: Sequence[TextResourceContents | BlobResourceContents]) -> str:
    """Return the contents of a resource as text; what isn't text is named with its kind and size."""
    return storable_text("\n".join(map(_resource, contents)))


def _shown(part: ContentBlock) -> str:
    match part:
        case TextContent():
            return part.text
        case ImageContent():
            return f"[image, {part.mimeType}, {_size(part.data)}]"
        case AudioContent():
            return f"[audio, {part.mimeType}, {_size(part.data)}]"
        case ResourceLink():
            return f"[resource {part.uri}, {part.mimeType or 'unknown type'}: {part.description or part.name}]"
        case EmbeddedResource():
            return _resource(part.resource)
        case _:
            assert_never(part)


def _resource(resource: TextResourceContents | BlobResourceContents) -> str:
    match resource:
        case TextResourceContents():
            return resource.text
        case BlobResourceContents():
            return f"[resource {resource.uri}, {resource.mimeType or 'unknown type'}, {_size(resource.blob)}]"
        case _:
            assert_never(resource)


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
