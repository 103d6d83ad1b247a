"""The imports of commands that most calls do without: the database, for a command without a platform, and files.

A command that asks a running platform needs none of this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

type Finding = Mapping[str, str]


def checked_settings(context: typer.Context):
    """Return all settings, checked. Imports pydantic-settings."""
    from starling.app.cli.platform.command_settings import settings_of

    return settings_of(context)


def chosen_model():
    """Return settings with the model that a person chooses. Imports the clients of models."""
    from starling.app.cli import model_choice

    return model_choice.chosen_model()


def database_api(context: typer.Context, tenant: str):
    """Return the API for a tenant over the database. Imports FastAPI, SQLAlchemy, the gateway and the brain."""
    from starling.app.cli.platform.database_api import DatabaseApi

    return DatabaseApi(checked_settings(context), tenant)


def run_document(found: Mapping[str, Any]):
    """Return the document of a run from its JSON. Parts that it lacks are empty. Imports pydantic."""
    from pydantic import TypeAdapter

    from starling.core.run_document.document import RunDocument

    return TypeAdapter(RunDocument).validate_python(found)


def governance(context: typer.Context, file: Path | None = None) -> Mapping[str, Any] | None:
    """Return the governance table of the settings, or of those in a file. Imports pydantic-settings."""
    from starling.app.cli.platform.settings_file import read_settings_file
    from starling.core.settings.loading import load_settings

    settings = load_settings(read_settings_file(file), str(file)) if file else checked_settings(context)
    return settings.governance.model_dump(mode="json") if settings.governance is not None else None


def read_servers(file: Path) -> Mapping[str, Any]:
    """Return the content of an `mcpServers` file, checked. Imports pydantic."""
    from mcp_gateway.configuration.servers import read_config

    return {"mcpServers": {name: server.document for name, server in read_config(file).items()}}


def read_team_file(file: Path, *, cases: bool = False) -> tuple[Sequence[Mapping[str, Any]], Sequence[Finding]]:
    """Return the team spec in a YAML or JSON file, or its `cases`, and what is wrong with their form.

    Imports pydantic and PyYAML.
    """
    from architect.spec_format import read_cases, read_team
    from starling.core.teams.spec import TeamInvalidError

    text = file.read_text("utf-8")
    try:
        found = read_cases(text) if cases else [read_team(text)]
    except TeamInvalidError as error:
        return (), [asdict(finding) for finding in error.findings]
    return [one.model_dump(mode="json", exclude_unset=True) for one in found], ()


def shortest_team(spec: Mapping[str, Any]) -> str:
    """Return a team spec as YAML without what is the default anyway. Imports pydantic and PyYAML."""
    from architect.spec_format import spec_yaml
    from starling.core.teams.spec import TeamSpec

    return spec_yaml(TeamSpec.model_validate(spec))


def team_schema() -> Mapping[str, Any]:
    """Return the JSON schema of team specs. Imports pydantic."""
    from starling.core.teams import spec as teams

    return teams.team_schema()
