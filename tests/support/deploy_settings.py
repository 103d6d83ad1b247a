"""What the files in deploy/ have to agree with: the settings, and the image."""

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices

from starling.core.settings.schema import Settings
from tests.support.dockerfile import read_dockerfile
from tests.support.documented_commands import ROOT

DEPLOY = ROOT / "deploy"


def setting_variables() -> frozenset[str]:
    """Return the environment variables that are settings."""
    aliases = [field.validation_alias for field in Settings.model_fields.values()]
    names = {str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices}
    return frozenset(name for name in names if name.isupper())


def settings_from(variables: Mapping[str, str]) -> Settings:
    """Return the settings of a process with these environment variables. Raises what a start with them raises."""
    values: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        for choice in alias.choices if isinstance(alias, AliasChoices) else ():
            if str(choice).isupper() and str(choice) in variables:
                values[name] = variables[str(choice)]
    if "limits" in values:
        values["limits"] = type(Settings().limits).model_validate_json(values["limits"])
    return Settings(**values)


def image_variables() -> dict[str, str]:
    """Return the variables of the image."""
    stages = read_dockerfile((DEPLOY / "Dockerfile").read_text("utf-8")).lineage("starling")
    instructions = [each for stage in stages for each in stage.instructions if each.name == "ENV"]
    return {name: value for each in instructions for name, value in each.pairs.items()}


def image_user() -> tuple[int, int]:
    """Return the user and the group of the image."""
    uid, gid = read_dockerfile((DEPLOY / "Dockerfile").read_text("utf-8")).last("starling", "USER").rest.split(":")
    return int(uid), int(gid)


def writable_folders() -> set[str]:
    """Return the folders that a container has to be able to write."""
    variables = image_variables()
    return {"/tmp", variables["HOME"], variables["STARLING_DATA_DIR"]}


def variables_of_file(text: str) -> set[str]:
    """Return the names of the variables in a file of `NAME=value` lines, also of those in comments."""
    names = (line.removeprefix("# ").partition("=")[0] for line in text.splitlines() if "=" in line)
    return {name for name in names if name.isupper() and name.replace("_", "").isalnum()}
