"""The settings of one command: options of the command line first, then the environment and the file."""

from pathlib import Path

import typer

from starling.app.cli.output import diagnostics
from starling.app.logs import configure_logs
from starling.core.settings import Settings, load_settings

_FOUND_HERE = Path("mcp.json")


def settings_of(context: typer.Context, **given: object) -> Settings:
    """Load the settings; what is `given` and not None goes first. Configures logging too.

    Raises ConfigurationError.
    """
    file: Path | None = context.find_root().obj
    settings = load_settings(file, **{name: value for name, value in given.items() if value is not None})
    configure_logs(settings.log_level, diagnostics(), settings)
    return settings


def with_servers_found_here(settings: Settings) -> Settings:
    """Return the settings with `mcp.json` of the current folder, where they name no file and there is one."""
    if settings.mcp_config is not None or not _FOUND_HERE.is_file():
        return settings
    return settings.model_copy(update={"mcp_config": _FOUND_HERE})
