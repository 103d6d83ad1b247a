"""What a gateway or a run has in place of services that a test doesn't need."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal

from mcp_gateway.gateway import Connect, Gateway, GatewayParts
from mcp_gateway.gateway import open_gateway as open_whole_gateway
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.repository import ServerRepository
from starling.core.artifacts import Artifact, ArtifactContent, ArtifactOrigin, ArtifactStore, NotStored
from starling.core.errors import NotFoundError
from starling.core.settings.schema import Limits
from starling.core.tools import Halts, ToolCall


class DisabledArtifactStore(ArtifactStore):
    """Stores nothing."""

    async def put(self, origin: ArtifactOrigin, content: bytes, media_type: str) -> str | NotStored:
        del origin, content, media_type
        return NotStored("no artifact store is configured")

    async def read(self, tenant: str, run_id: str, artifact: str) -> ArtifactContent:
        del tenant, run_id
        raise NotFoundError("artifact", artifact)

    async def part(self, tenant: str, run_id: str, artifact: str, offset: int, length: int) -> str:
        del tenant, run_id, offset, length
        raise NotFoundError("artifact", artifact)

    async def of_run(self, tenant: str, run_id: str) -> Sequence[Artifact]:
        del tenant, run_id
        return ()


DISABLED_ARTIFACT_STORE: Final = DisabledArtifactStore()


class NoHalts(Halts):
    """Nothing is ever switched off."""

    def reason(self, call: ToolCall) -> str:
        del call
        return ""

    def everything(self, tenant: str, caller: str) -> str:
        del tenant, caller
        return ""

    def named(self, kind: Literal["agent", "server"], tenant: str) -> Mapping[str, str]:
        del kind, tenant
        return {}


NO_HALTS: Final = NoHalts()


def open_gateway(
    repository: ServerRepository,
    connect: Connect,
    limits: Limits,
    environment: Mapping[str, str],
    *,
    halts: Halts = NO_HALTS,
    artifacts: ArtifactStore = DISABLED_ARTIFACT_STORE,
    secrets: Mapping[str, str] | None = None,
    observed: ServerRepository | None = None,
    **others: Any,
) -> AbstractAsyncContextManager[Gateway]:
    """Return a gateway without kill switches, artifacts and secrets of the platform, unless they are given."""
    directory = Directory(secrets or {}, environment)
    stores = repository, observed or repository
    parts = GatewayParts(*stores, limits, environment, halts, artifacts, directory, **others)
    return open_whole_gateway(parts, connect)
