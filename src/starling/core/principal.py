"""Who asks, and what they may reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

DEFAULT_TENANT: Final = "default"
SHARED: Final = "*"  # the tenant column of what every tenant sees: servers, tools and epochs


class Scope(StrEnum):
    """What a key may be used for. None includes another one."""

    RUN = "run"
    TEAMS = "teams"
    SERVERS = "servers"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """What runs may reach: every tool of `servers`, and besides single `tools`, by their full names."""

    servers: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()

    def permits(self, server: str, tool: str) -> bool:
        """Whether a tool of a server, given by its full name, may be called."""
        return server in self.servers or tool in self.tools

    def reaches(self, server: str) -> bool:
        """Whether any tool of a server may be called."""
        return server in self.servers or any(tool.startswith(f"{server}.") for tool in self.tools)

    def covers(self, other: "Grant | None") -> bool:
        """Whether everything that another grant reaches is reached by this one."""
        if other is None:
            return False
        return other.servers <= self.servers and all(self.permits(tool.partition(".")[0], tool) for tool in other.tools)

    def as_json(self) -> dict[str, list[str]]:
        """Return the document that `of` reads."""
        return {"servers": sorted(self.servers), "tools": sorted(self.tools)}

    @classmethod
    def of(cls, document: Mapping[str, Sequence[str]] | None) -> Self | None:
        """Return the grant that a document describes; None, which limits nothing, for None."""
        if document is None:
            return None
        return cls(frozenset(document["servers"]), frozenset(document["tools"]))


@dataclass(frozen=True, slots=True)
class Principal:
    """Tenant, key and scopes of a caller; `grant` limits what its runs may reach (None: everything)."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]
    grant: Grant | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what a run remembers of its caller."""
        grant = self.grant.as_json() if self.grant else None
        return {"key_id": self.key_id, "scopes": sorted(self.scopes), "grant": grant}
