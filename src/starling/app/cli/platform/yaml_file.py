"""Reads a YAML file of settings."""

from pathlib import Path

import yaml

from starling.core.errors import ConfigurationError


def read_yaml(path: Path) -> object:
    """Return what the file holds. Raises ConfigurationError with the place of the fault."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"There is no settings file {path}.", "Check the path given with --settings."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}.", "Check the path given with --settings.") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {_reason(error)}.", "Correct the file at that place.") from None


def _reason(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"{error.problem} at line {mark.line + 1}, column {mark.column + 1}"
