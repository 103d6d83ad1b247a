"""The imports of commands that most calls do without: the database, for a command without a platform, and files.

A command that asks a running platform needs none of this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer


def checked_settings(context: typer.Context):
    """Return all settings, checked. Imports pydantic-settings."""
    from starling.app.cli.platform.command_settings import settings_of

    return settings_of(context)


def database_api(context: typer.Context, tenant: str):
    """Return the API for a tenant over the database. Imports FastAPI, SQLAlchemy, the gateway and the brain."""
    from starling.app.cli.platform.database_api import DatabaseApi

    return DatabaseApi(checked_settings(context), tenant)


def read_servers(file: Path) -> Mapping[str, Any]:
    """Return the content of an `mcpServers` file, checked. Imports pydantic."""
    from mcp_gateway.configuration.servers import read_config

    return {"mcpServers": {name: server.document for name, server in read_config(file).items()}}


def read_team(file: Path) -> tuple[Mapping[str, Any], Sequence[Mapping[str, str]]]:
    """Return the team spec in a YAML or JSON file, and what is wrong with its form. Imports pydantic and PyYAML."""
    from architect.spec_format import read_team
    from starling.core.teams.spec import TeamInvalidError

    try:
        return read_team(file.read_text("utf-8")).model_dump(mode="json", exclude_unset=True), ()
    except TeamInvalidError as error:
        return {}, [asdict(finding) for finding in error.findings]


def read_cases(file: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, str]]]:
    """Return the cases in a YAML or JSON file, and what is wrong with their form. Imports pydantic and PyYAML."""
    from architect.spec_format import read_cases
    from starling.core.teams.spec import TeamInvalidError

    try:
        return [case.model_dump(mode="json", exclude_unset=True) for case in read_cases(file.read_text("utf-8"))], ()
    except TeamInvalidError as error:
        return (), [asdict(finding) for finding in error.findings]


def shortest_team(spec: Mapping[str, Any]) -> str:
    """Return a team spec as YAML without what is the default anyway. Imports pydantic and PyYAML."""
    from architect.spec_format import spec_yaml
    from starling.core.teams.spec import TeamSpec

    return spec_yaml(TeamSpec.model_validate(spec))


def team_schema() -> Mapping[str, Any]:
    """Return the JSON schema of team specs. Imports pydantic."""
    from starling.core.teams import spec as teams

    return teams.team_schema()
