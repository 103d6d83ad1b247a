"""What is too long for a model, kept whole: under the hash of its content, for the run whose call gave it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from starling.core.errors import NotFoundError

READ_ARTIFACT: Final = "read_artifact"
"""The tool that agents have for reading on; results that were cut name it."""

type MediaType = Literal["text/plain", "application/json"]


def artifact_id(text: str) -> str:
    """Return what an artifact is known by: the SHA-256 of its text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose text it is: the result of a call in a run. `name` is the full name of its tool."""

    tenant: str
    run_id: str
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact as its run refers to it: the result of the call `call_id` of the tool `name`."""

    id: str
    name: str
    call_id: str
    media_type: MediaType
    bytes: int
    characters: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Content:
    """A whole artifact."""

    text: str
    media_type: MediaType


@dataclass(frozen=True, slots=True)
class NotKept:
    """Why something isn't there to be read later, as a part of a sentence."""

    reason: str


class ArtifactStore(Protocol):
    """Keeps artifacts. Nobody reaches one but through a run that refers to it."""

    async def put(self, origin: Origin, text: str, media_type: MediaType) -> str | NotKept:
        """Keep a storable text and that its origin refers to it; return its id. The same again changes nothing.

        Never raises for what the database does: whoever has a result goes on with it.
        """
        ...

    async def read(self, tenant: str, run_id: str, artifact: str) -> Content:
        """Return a whole artifact of a run. Raises NotFoundError, DatabaseUnavailableError."""
        ...

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        """Return up to `length` characters from `offset` on. Raises as `read` does."""
        ...

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        """Return what a run refers to, in the order in which it was kept. Raises DatabaseUnavailableError."""
        ...


class NoArtifacts(ArtifactStore):
    """Nothing is ever kept."""

    async def put(self, origin: Origin, text: str, media_type: MediaType) -> str | NotKept:
        del origin, text, media_type
        return NotKept("nothing is kept here")

    async def read(self, tenant: str, run_id: str, artifact: str) -> Content:
        del tenant, run_id
        raise NotFoundError("artifact", artifact)

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        del tenant, run_id, offset, length
        raise NotFoundError("artifact", artifact)

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        del tenant, run_id
        return ()


NO_ARTIFACTS: Final = NoArtifacts()
