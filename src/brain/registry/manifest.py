"""The manifest: what an epoch says, as content that has a hash."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict

from starling.core.json import digest
from starling.core.tools import Effect, ServerListing


class ToolPin(BaseModel):
    """A tool, pinned by the hash of its definition, and the effect class it has with us."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hash: str
    effect: Effect


class ServerEntry(BaseModel):
    """A server with its pinned tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config_hash: str
    description: str
    tools: dict[str, ToolPin]


class Manifest(BaseModel):
    """Everything that a run pinned to the epoch works with, apart from what was taken away since."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: dict[str, ServerEntry]
    builtins: list[str]
    prompts: dict[str, str]

    @classmethod
    def of(cls, listings: Iterable[ServerListing], builtins: Iterable[str], prompts: dict[str, str]) -> Self:
        """Return the manifest of these servers, builtin agents and prompt versions."""
        servers = {
            listing.name: ServerEntry(
                config_hash=listing.config_hash,
                description=listing.description,
                tools={tool.name: ToolPin(hash=tool.hash, effect=tool.effect) for tool in listing.tools},
            )
            for listing in sorted(listings, key=lambda listing: listing.name)
        }
        return cls(servers=servers, builtins=sorted(builtins), prompts=prompts)

    @property
    def hash(self) -> str:
        return digest(self.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class Epoch:
    """A numbered manifest."""

    number: int
    manifest: Manifest
