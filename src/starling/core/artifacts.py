"""Artifacts: what of tool results is too long for a model, or binary, stored by content hash for its run only."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

READ_ARTIFACT: Final = "read_artifact"
"""Name of the built-in tool with which agents read artifacts; shortened results mention it."""

_IMAGES: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
_BYTES: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")


def artifact_id(content: bytes) -> str:
    """Return the id of an artifact: the SHA-256 of its content, as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def image_type(content: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP image by its first bytes, None for other content."""
    return next((name for name, beginning in _IMAGES.items() if beginning.match(content)), None)


def media_type_of(declared: str, content: bytes) -> str:
    """Return the media type of binary content: what it is, if that can be seen, else what it is declared as.

    Without parameters. `application/octet-stream` for what is declared as one of the images and isn't it.
    """
    name = declared.partition(";")[0].strip().lower()
    believed = _MEDIA_TYPE.fullmatch(name) and name not in _IMAGES
    return image_type(content) or (name if believed else _BYTES)


def text_in(content: bytes) -> str | None:
    """Return the text that content is in UTF-8, None for binary content, to which NUL belongs, too."""
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary part of a result; `id` is what it has as an artifact."""

    id: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ArtifactOrigin:
    """The tool call that produced a content. `name` is the full name of the tool."""

    tenant: str
    run_id: str
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Metadata of an artifact: a result of call `call_id` of the tool `name`; `characters` is 0 for binary content."""

    id: str
    name: str
    call_id: str
    media_type: str
    bytes: int
    characters: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """The whole content of an artifact."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """Reason why a content was not stored, as a part of a sentence."""

    reason: str


class ArtifactStore(Protocol):
    """Stores artifacts. An artifact can be read only through a run that refers to it."""

    async def put(self, origin: ArtifactOrigin, content: bytes, media_type: str) -> str | NotStored:
        """Store a content and the reference from its origin; return its id. Idempotent.

        Database errors are returned as `NotStored`, so that the tool call still returns its result.
        """
        ...

    async def read(self, tenant: str, run_id: str, artifact: str) -> ArtifactContent:
        """Return an artifact of a run. Raises NotFoundError, DatabaseUnavailableError."""
        ...

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        """Return up to `length` characters of a text from `offset` on. Raises the same errors as `read`."""
        ...

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        """Return the artifacts of a run, oldest first. Raises DatabaseUnavailableError."""
        ...
