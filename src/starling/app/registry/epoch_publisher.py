"""Publishes a new epoch in the transaction that changes the servers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from brain.registry.manifest import Manifest, ServerEntry, ToolPin
from brain.registry.prompt_versions import PromptChoice
from brain.registry.repository import Activation, EpochRepository, save_texts
from brain.registry.service import with_servers
from brain.skills.repository import follow_tools
from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.registration.repository import ServerRow, settings_hash
from mcp_gateway.registration.server_rows import effective
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection

_OWN: Final = ("description", "input_schema", "output_schema", "reflect")  # options of a tool that its pin has, too


def as_it_is(manifest: Manifest) -> Manifest:
    """Return the manifest, with the table of governance that the epoch before has."""
    return manifest


@dataclass(slots=True)
class EpochPublisher:
    """Called with the changed servers: activates their epoch and writes the audit entry.

    `change` is recorded besides, where the epoch is a new one. `prompts` are the texts that it pins; without them it
    keeps those of the epoch before. `governed` returns a manifest with what runs are allowed in it.
    """

    epochs: EpochRepository
    actor: Actor
    action: str
    change: AuditedChange | None = None
    prompts: PromptChoice | None = None
    governed: Callable[[Manifest], Manifest] = as_it_is
    _activation: Activation | None = field(default=None, init=False)

    @property
    def activation(self) -> Activation:
        """The result of the last change."""
        assert self._activation is not None
        return self._activation

    async def __call__(self, connection: EngineConnection, rows: Iterable[ServerRow]) -> None:
        """Activate the epoch of these servers in the connection's transaction."""
        entries = entries_of(rows)
        choice = self.prompts or PromptChoice({})
        found = await self.epochs.activate(
            connection,
            self.actor,
            lambda manifest: self.governed(choice.applied(with_servers(manifest, entries))),
        )
        if found.changes.prompts or not choice.keep_remote:  # a start mostly finds the texts that are pinned already
            await save_texts(connection, choice.pinned_by(found.epoch.manifest))
        if found.changes:
            detail = found.changes.model_dump(mode="json", exclude_defaults=True)
            await follow_tools(connection, found.epoch.manifest.tool_hashes())
            await record(connection, self.actor, AuditedChange(self.action, f"epoch {found.epoch.number}", detail))
            if self.change is not None:
                await record(connection, self.actor, self.change)
        self._activation = found


def entries_of(rows: Iterable[ServerRow]) -> dict[str, ServerEntry]:
    """Return the manifest entries of servers."""
    return {
        row.name: ServerEntry(
            config_hash=row.config_hash,
            source=row.source,
            state=row.state,
            description=row.description,
            tools={tool: _pin(pin, tool, options) for tool, pin in row.tools.items()},
            tenants=options.tenants,
            settings_hash=settings_hash(row),
        )
        for row, options in ((row, effective(row).options) for row in rows)
    }


def _pin(definition_hash: str, tool: str, options: ServerOptions) -> ToolPin:
    own = {name: getattr(options.tool(tool), name) for name in _OWN}
    own["reflect"] = own["reflect"] or options.reflect
    effect = options.effect_of(tool)
    declared = (effect is Effect.UNSAFE and options.is_declared(tool)) or None
    return ToolPin(hash=definition_hash, effect=effect, declared=declared, **own)
