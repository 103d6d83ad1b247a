"""The program of the helper process that reads one large message. It imports little, to start fast.

It reads the message from stdin and writes to stdout a line of JSON and two texts, whose sizes in bytes are in the line:
`{"id", "isError", "text", "data", "binaries"}`: the parts of a tool's result, or the contents of a resource, as one
text, and structured content as JSON. The binary parts follow; `binaries` has `[id, media type, size]` of each. Where
the message is the answer to another request, `data` is the whole result and `text` is -1; for a message that can't be
read as an answer, the line is `{"unreadable": reason}`.
"""

import base64
import json
import sys
from collections.abc import Mapping
from itertools import chain
from typing import Any, cast

from starling.core.artifacts import Binary, artifact_id, media_type_of
from starling.core.json import canonical, storable

_LEVELS = 200
_MOST_BINARIES = 100  # of one result
_DECLARED_CHARS = 100  # of a media type that is not believed
_VALUES = 300_000  # of a result that isn't a tool's, which the platform reads again: about 50 ms


class _UnreadableError(ValueError):
    pass


def main() -> None:
    """Read, convert and write one message."""
    head: dict[str, Any]
    parts: list[bytes] = []
    try:
        head, parts = _converted(sys.stdin.buffer.read())
    except _UnreadableError as error:
        head = {"unreadable": str(error)}
    except RecursionError:
        head = {"unreadable": "it is nested too deeply"}
    except MemoryError:
        head = {"unreadable": "it takes too much memory"}
    except ValueError as error:
        head = {"unreadable": f"it is not JSON that can be read: {str(error)[:200]}"}
    sys.stdout.buffer.writelines([json.dumps(head).encode(), b"\n", *parts])


def _converted(raw: bytes) -> tuple[dict[str, Any], list[bytes]]:
    message: Any = json.loads(raw.decode(), parse_constant=_refuse)
    number, result = _answer(message)
    content: Any = result.get("content")
    if content is None and isinstance(result.get("contents"), list):
        content = [{"type": "resource", "resource": part} for part in result["contents"]]
    if not isinstance(content, list):
        if _count(result) > _VALUES:
            raise _UnreadableError(f"it has more than {_VALUES:,} values")
        data = json.dumps(result, ensure_ascii=False).encode()
        return {"id": number, "isError": False, "text": -1, "data": len(data)}, [data]
    binaries: list[Binary] = []
    text = "\n".join(content_text(part, binaries) for part in content)  # pyright: ignore[reportUnknownVariableType]
    structured, data = result.get("structuredContent"), b""
    if structured is not None:
        data = canonical(structured).encode()
    if structured is not None and not repeats(text, structured):
        text = "\n\n".join(filter(None, (text, data.decode())))
    shown = text.encode()
    head = {"id": number, "isError": result.get("isError") is True, "text": len(shown), "data": len(data)}
    named = [(part.id, part.media_type, len(part.content)) for part in binaries]
    return {**head, "binaries": named}, [shown, data, *(part.content for part in binaries)]


def _answer(message: Any) -> tuple[int | str, dict[str, Any]]:
    """Return the id and the result of an answer, which can be stored. Raises _UnreadableError."""
    match message:
        case {"id": int() | str() as number, "result": dict()} if not {"error", "method"} & message.keys():
            _check(message["result"], _LEVELS)
            result = cast("dict[str, Any]", storable(message["result"]))
        case _:
            raise _UnreadableError("it is not a JSON-RPC answer")
    if not isinstance(result.get("structuredContent", {}), dict | None):
        raise _UnreadableError("its structured content is not an object")
    return number, result


def _count(value: Any) -> int:
    """Return how many values a value has, itself included."""
    match value:
        case dict():
            return 1 + sum(map(_count, value.values()))  # pyright: ignore[reportUnknownArgumentType]
        case list():
            return 1 + sum(map(_count, value))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return 1


def _refuse(name: str) -> None:
    raise _UnreadableError(f"it is not JSON: {name} is not allowed")


def repeats(text: str, data: Mapping[str, Any]) -> bool:
    """Whether the text says all of the structured content, as many servers have it."""
    if list(data.values()) == [text]:
        return True
    try:
        return json.loads(text) == data
    except (ValueError, RecursionError):
        return False


def content_text(part: Any, binaries: list[Binary]) -> str:
    """Return a part of the content as text; a binary one is added to `binaries`, and its note is returned."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(media)}:
            return _note(kind, media, data, binaries)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            about = part.get("description") or name
            return f"[resource {uri}, {part.get('mimeType') or 'unknown type'}: {about}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)} as inner}:
            return _note(f"resource {uri}", str(inner.get("mimeType") or ""), blob, binaries)
        case _:
            raise _UnreadableError("its content is not what MCP defines")


def _note(what: str, declared: str, data: str, binaries: list[Binary]) -> str:
    """Add a binary part to `binaries` and return the note that names it. What isn't base64 is kept as it was sent."""
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        content = data.encode(errors="replace")
        media_type, fault = "text/plain", ", not base64 as it should be"
    else:
        media_type = media_type_of(declared, content)
        fault = f", declared as {declared[:_DECLARED_CHARS]}" if declared not in ("", media_type) else ""
    shown = f"{what}, {media_type}{fault}, {len(content):,} bytes"
    if len(binaries) == _MOST_BINARIES:
        return f"[{shown}, not kept: a result may have {_MOST_BINARIES}]"
    binaries.append(Binary(artifact_id(content), media_type, content))
    return f"[{shown}, artifact {binaries[-1].id}]"


def _check(value: Any, levels: int) -> None:
    """Raise _UnreadableError at no levels, UnicodeEncodeError, a ValueError, for half a surrogate pair."""
    if levels == 0:
        raise _UnreadableError("it is nested too deeply")
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        for part in chain(value, value.values()) if isinstance(value, dict) else value:  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            _check(part, levels - 1)
