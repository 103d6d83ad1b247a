"""Whether each MCP server starts and lists its tools now."""

from collections.abc import Mapping, Sequence

from mcp_gateway.config import McpConfig, read_config, server_of
from mcp_gateway.listing import Listed
from mcp_gateway.trying import try_servers
from starling.app.doctor.finding import Finding, ok, problem
from starling.app.records import open_records
from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError, ServerUnavailableError
from starling.core.settings import Settings, environment


async def check(settings: Settings) -> Sequence[Finding]:
    """Start and list every server of the file, and those that were added otherwise. Raises ConfigurationError."""
    config = await _known(settings) | (read_config(settings.mcp_config) if settings.mcp_config else {})
    if not config:
        return [Finding("servers", "warning", "There are no MCP servers.", "Add one with `starling server add`.")]
    return findings(await try_servers(config, settings.limits, environment()))


def findings(answers: Mapping[str, Listed | ServerUnavailableError]) -> Sequence[Finding]:
    """Return what there is to say about each server, by name."""
    return [_finding(name, answers[name]) for name in sorted(answers)]


def _finding(name: str, answer: Listed | ServerUnavailableError) -> Finding:
    subject = f"server {name}"
    if isinstance(answer, ServerUnavailableError):
        return problem(subject, answer)
    said = f"It lists {len(answer.tools)} tools."
    if answer.left_out:
        left_out = f"{said} Left out: {'; '.join(answer.left_out)}."
        return Finding(subject, "warning", left_out, "Report it to the server's author.")
    return ok(subject, said)


async def _known(settings: Settings) -> McpConfig:
    try:
        async with open_records(settings) as records:
            return {row.name: server_of(row.config) for row in await records.servers.servers()}
    except (DatabaseUnavailableError, DatabaseUnsuitableError):  # which is a finding of another check
        return {}
