"""Callers: tenant, scopes and grants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

DEFAULT_TENANT: Final = "default"
SHARED: Final = "*"  # value of the tenant column for rows of all tenants: servers, tools and epochs

LOCAL_REMEDY: Final = (
    "Send `Authorization: Bearer` with the content of the file `token` in the data folder, as `starling` commands do, "
    "or a key."
)


class Scope(StrEnum):
    """Permission of a key. No scope includes another one. `service` is for single tool calls alone."""

    RUN = "run"
    SERVICE = "service"
    TEAMS = "teams"
    SERVERS = "servers"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a run may call: every tool of `servers`, and the single `tools` by full name."""

    servers: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()

    def permits(self, server: str, tool: str) -> bool:
        """Return whether a tool, given by its full name, may be called."""
        return server in self.servers or tool in self.tools

    def reaches(self, server: str) -> bool:
        """Return whether at least one tool of a server may be called."""
        return server in self.servers or any(tool.startswith(f"{server}.") for tool in self.tools)

    def covers(self, other: "Grant | None") -> bool:
        """Return whether this grant allows everything that `other` allows."""
        if other is None:
            return False
        return other.servers <= self.servers and all(self.permits(tool.partition(".")[0], tool) for tool in other.tools)

    def intersection(self, other: "Grant | None") -> "Grant":
        """Return what both grants allow; None allows everything."""
        if other is None:
            return self
        single = {tool for tool in self.tools if other.permits(tool.partition(".")[0], tool)}
        single |= {tool for tool in other.tools if self.permits(tool.partition(".")[0], tool)}
        return Grant(self.servers & other.servers, frozenset(single))

    def as_json(self) -> dict[str, list[str]]:
        """Return the JSON form that `from_json` reads."""
        return {"servers": sorted(self.servers), "tools": sorted(self.tools)}

    @classmethod
    def from_json(cls, document: Mapping[str, Sequence[str]] | None) -> Self | None:
        """Return the grant of its JSON form. None means no limit."""
        if document is None:
            return None
        return cls(frozenset(document["servers"]), frozenset(document["tools"]))


@dataclass(frozen=True, slots=True)
class Principal:
    """Tenant, key and scopes of a caller; `grant` limits what its runs may call (None: no limit).

    `on_host` says that the caller is an admin of this machine: one that can read the data folder or the database.
    """

    tenant: str
    key_id: str
    scopes: frozenset[Scope]
    grant: Grant | None = None
    on_host: bool = False

    @property
    def keyless(self) -> bool:
        """Whether nothing but its address speaks for the caller, as for any program on this machine."""
        return not self.key_id and Scope.ADMIN not in self.scopes

    @property
    def maker(self) -> str:
        """Who the caller is as the maker of agents and teams: a key's id, `local`, or `keyless`."""
        return "keyless" if self.keyless else self.key_id or "local"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form that is stored with a run."""
        grant = self.grant.as_json() if self.grant else None
        return {"key_id": self.key_id, "scopes": sorted(self.scopes), "grant": grant}


HOST_ADMIN: Final = Principal(DEFAULT_TENANT, key_id="", scopes=frozenset(Scope), on_host=True)
