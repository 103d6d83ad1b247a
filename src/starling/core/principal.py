"""Who asks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_TENANT: Final = "default"
SHARED: Final = "*"  # the tenant column of what every tenant sees: servers, tools and epochs


class Scope(StrEnum):
    """What a key may be used for."""

    RUN = "run"
    TEAMS = "teams"
    SERVERS = "servers"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Tenant, key and scopes of a caller; `servers` limits what it may reach (None: all)."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]
    servers: frozenset[str] | None = None
