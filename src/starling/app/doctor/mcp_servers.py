"""Whether each MCP server starts and lists its tools now."""

import contextlib
import os
from collections.abc import Sequence

from mcp_gateway.configuration.address_rules import AddressRules
from mcp_gateway.configuration.options import ServerOptions
from mcp_gateway.configuration.servers import McpConfig, read_config, server_of
from mcp_gateway.registration.discovery import try_servers
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.repository import ServerRow
from mcp_gateway.sessions.isolation import (
    NOT_APART,
    NOT_APART_REMEDY,
    VISIBLE,
    VISIBLE_REMEDY,
    ServerIsolation,
)
from starling.app.container.configuration import private_files, server_variables, servers_of_settings
from starling.app.container.database import find_database
from starling.app.container.storage import open_storage
from starling.core.diagnostics import Diagnostic, ok, problem, warning
from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError, ServerUnavailableError
from starling.core.settings.schema import Settings, environment


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Start and list every server of the file, and those that were added otherwise. Raises ConfigurationError."""
    rows: Sequence[ServerRow] = ()
    with contextlib.suppress(DatabaseUnavailableError, DatabaseUnsuitableError):  # another check reports that
        async with open_storage(settings, find_database(settings)) as storage:
            rows = await storage.servers.servers()
    known = {row.name: server_of(row.config, row.source) for row in rows}
    added = {row.name: known[row.name] for row in rows if row.source == "host"}
    of_file = read_config(settings.mcp_config) if settings.mcp_config else {}
    config = known | servers_of_settings(settings) | added | of_file
    if not config:
        return [warning("servers", "There are no MCP servers.", "Add one with `starling server add`.")]
    addresses = AddressRules.of(settings.allowed_addresses)
    answers = await try_servers(config, settings.limits, server_variables(settings), private_files(settings), addresses)
    found = [_finding(name, config[name].options, answers[name]) for name in sorted(answers)]
    for row in rows:
        if row.quarantined:
            tools = "; ".join(f"{tool}: {reason}" for tool, reason in row.quarantined.items())
            remedy = f"`starling server approve {row.name}` shows what changed, and approves it."
            found.append(warning(f"server {row.name}", f"Quarantined, so that agents don't get them: {tools}", remedy))
    return [*found, *await _isolation(config, ServerIsolation(private_files(settings), environment()), settings)]


async def _isolation(config: McpConfig, isolation: ServerIsolation, settings: Settings) -> Sequence[Diagnostic]:
    found: list[Diagnostic] = []
    unreached = {name: path for name, server in config.items() if (path := isolation.unreached(name, server))}
    if settings.server_user and os.geteuid() != 0:
        message = "STARLING_SERVER_USER has no effect: only root can start servers as another user."
        found.append(warning("isolation", message, "Run Starling as root, or leave the setting out."))
    elif unreached:
        paths = "; ".join(f"{name} ({path})" for name, path in sorted(unreached.items()))
        message = f"These servers don't run as {settings.server_user}, which can't reach what they need: {paths}."
        found.append(warning("isolation", message, "Install them where that user can read and run them."))
    files = {name: one.files for name, server in sorted(config.items()) if (one := await isolation.of(name, server))}
    machine = await isolation.machine()
    if visible := ", ".join(name for name, kept_by in files.items() if kept_by == "none"):
        found.append(warning("isolation", VISIBLE.format(visible, machine.files_reason), VISIBLE_REMEDY))
    if files and machine.processes != "apart":
        platform = "" if set(files.values()) == {"own_user"} else " and the platform"
        message = NOT_APART[machine.processes].format(", ".join(files), platform, machine.processes_reason)
        found.append(warning("processes", message, NOT_APART_REMEDY))
    return found


def _finding(name: str, options: ServerOptions, answer: Listed | ServerUnavailableError) -> Diagnostic:
    subject = f"server {name}"
    if isinstance(answer, ServerUnavailableError):
        return problem(subject, answer)
    said = f"It lists {len(answer.tools)} tool{'' if len(answer.tools) == 1 else 's'}."
    if faults := answer.faults(options):
        problems, remedies = (" ".join(texts) for texts in zip(*faults, strict=True))
        return warning(subject, f"{said} {problems}", remedies)
    return ok(subject, said)
