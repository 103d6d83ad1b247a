"""Artifacts: tool results that are too long for a model, stored by content hash and visible to their run only."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

READ_ARTIFACT: Final = "read_artifact"
"""Name of the built-in tool with which agents read artifacts; shortened results mention it."""

type MediaType = Literal["text/plain", "application/json"]


def artifact_id(text: str) -> str:
    """Return the id of an artifact: the SHA-256 of its text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ArtifactOrigin:
    """The tool call that produced a text. `name` is the full name of the tool."""

    tenant: str
    run_id: str
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Metadata of an artifact: the result of call `call_id` of the tool `name`."""

    id: str
    name: str
    call_id: str
    media_type: MediaType
    bytes: int
    characters: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """The whole text of an artifact."""

    text: str
    media_type: MediaType


@dataclass(frozen=True, slots=True)
class NotStored:
    """Reason why a text was not stored, as a part of a sentence."""

    reason: str


class ArtifactStore(Protocol):
    """Stores artifacts. An artifact can be read only through a run that refers to it."""

    async def put(self, origin: ArtifactOrigin, text: str, media_type: MediaType) -> str | NotStored:
        """Store a text and the reference from its origin; return its id. Idempotent.

        Database errors are returned as `NotStored`, so that the tool call still returns its result.
        """
        ...

    async def read(self, tenant: str, run_id: str, artifact: str) -> ArtifactContent:
        """Return an artifact of a run. Raises NotFoundError, DatabaseUnavailableError."""
        ...

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        """Return up to `length` characters from `offset` on. Raises the same errors as `read`."""
        ...

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        """Return the artifacts of a run, oldest first. Raises DatabaseUnavailableError."""
        ...
