"""Settings of a command: command-line options, then the environment, then the settings file."""

from collections.abc import Mapping
from pathlib import Path

import typer

from starling.app.cli.platform.settings_file import DEFAULT, MCP_FILE, is_here, read_settings_file
from starling.app.cli.terminal.output import diagnostics
from starling.app.telemetry.logs import configure_logs
from starling.core.settings.loading import load_settings
from starling.core.settings.schema import Settings

_QUIET = "WARNING"


def settings_of(context: typer.Context) -> Settings:
    """Load the settings of a command that ends by itself; by default it logs warnings only.

    Raises ConfigurationError.
    """
    settings = _load(context, {})
    configure_logs(settings.log_level if "log_level" in settings.model_fields_set else _QUIET, diagnostics(), settings)
    return settings


def service_settings_of(context: typer.Context, **given: object) -> Settings:
    """Load the settings of a service; `given` values that are not None take precedence. Raises ConfigurationError."""
    settings = _load(context, {name: value for name, value in given.items() if value is not None})
    configure_logs(settings.log_level, diagnostics(), settings)
    return settings


def _load(context: typer.Context, given: Mapping[str, object]) -> Settings:
    file: Path | None = context.find_root().obj
    return load_settings(read_settings_file(file), str(file or DEFAULT), **given)


def with_servers_found_here(settings: Settings) -> Settings:
    """Return the settings with `mcp.json` of the current folder, where they name no file and there is one."""
    if settings.mcp_config is not None or not is_here(MCP_FILE):
        return settings
    return settings.model_copy(update={"mcp_config": MCP_FILE})
