"""Publishes a new epoch in the transaction that changes the servers."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from brain.registry.manifest import ServerEntry, ToolPin
from brain.registry.repository import Activation, EpochRepository
from brain.registry.service import with_servers
from brain.skills.repository import follow_tools
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.repository import ServerRow
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection


@dataclass(slots=True)
class EpochPublisher:
    """Called with the changed servers: activates their epoch and writes the audit entry."""

    epochs: EpochRepository
    actor: Actor
    action: str
    _activation: Activation | None = field(default=None, init=False)

    @property
    def activation(self) -> Activation:
        """The result of the last change."""
        assert self._activation is not None
        return self._activation

    async def __call__(self, connection: EngineConnection, rows: Iterable[ServerRow]) -> None:
        """Activate the epoch of these servers in the connection's transaction."""
        entries = entries_of(rows)
        found = await self.epochs.activate(connection, self.actor, lambda manifest: with_servers(manifest, entries))
        if found.changes:
            detail = found.changes.model_dump(mode="json", exclude_defaults=True)
            await follow_tools(connection, found.epoch.manifest.tool_hashes())
            await record(connection, self.actor, AuditedChange(self.action, f"epoch {found.epoch.number}", detail))
        self._activation = found


def entries_of(rows: Iterable[ServerRow]) -> dict[str, ServerEntry]:
    """Return the manifest entries of servers."""
    return {row.name: _entry(row) for row in rows}


def _entry(row: ServerRow) -> ServerEntry:
    options = server_of(row.config).options
    return ServerEntry(
        config_hash=row.config_hash,
        source=row.source,
        state=row.state,
        description=row.description,
        tools={tool: ToolPin(hash=pin, effect=options.effect_of(tool)) for tool, pin in row.tools.items()},
        tenants=options.tenants,
    )
