"""Publishes a new epoch in the transaction that changes the servers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from brain.registry.manifest import ServerEntry, ToolPin
from brain.registry.prompt_versions import PromptChoice
from brain.registry.repository import Activation, EpochRepository, save_texts
from brain.registry.service import with_servers
from brain.skills.repository import follow_tools
from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.registration.repository import ServerRow, settings_hash
from mcp_gateway.registration.server_rows import effective
from starling.app.registry.governance import with_governance
from starling.core.governance import GovernanceTable
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection

_OWN: Final = ("description", "input_schema", "output_schema", "reflect")  # options of a tool that its pin has, too


@dataclass(slots=True)
class EpochPublisher:
    """Called with the changed servers: activates their epoch and writes the audit entry.

    `change` is recorded besides, where the epoch is a new one. `prompts` are the texts that it pins, `governance`
    what it allows runs; without them it keeps those of the epoch before. A table that isn't `checked` may name what
    there isn't. `activation` is the result of the last change.
    """

    epochs: EpochRepository
    actor: Actor
    action: str
    change: AuditedChange | None = None
    prompts: PromptChoice | None = None
    governance: GovernanceTable | None = None
    checked: bool = True
    activation: Activation = field(init=False)

    async def __call__(self, connection: EngineConnection, rows: Iterable[ServerRow]) -> None:
        """Activate the epoch of these servers in the connection's transaction."""
        entries = entries_of(rows)
        choice = self.prompts or PromptChoice({})
        found = await self.epochs.activate(
            connection,
            self.actor,
            lambda manifest: with_governance(
                choice.applied(with_servers(manifest, entries)), self.governance, checked=self.checked
            ),
        )
        if found.changes.prompts or not choice.keep_remote:  # a start mostly finds the texts that are pinned already
            await save_texts(connection, choice.pinned_by(found.epoch.manifest))
        if found.changes:
            detail = found.changes.model_dump(mode="json", exclude_defaults=True)
            await follow_tools(connection, found.epoch.manifest.tool_hashes())
            await record(connection, self.actor, AuditedChange(self.action, f"epoch {found.epoch.number}", detail))
            if self.change is not None:
                await record(connection, self.actor, self.change)
        self.activation = found


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
