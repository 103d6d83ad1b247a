"""The settings file: YAML, read once."""

from pathlib import Path
from typing import Any, cast

import yaml

from starling.core.errors import ConfigurationError

DEFAULT = Path("starling.yaml")


def read_settings_file(file: Path | None) -> dict[str, Any]:
    """Return the content of `file`; without one, that of `starling.yaml` in this folder if it exists.

    Raises ConfigurationError with the place of the fault.
    """
    if file is None and not DEFAULT.is_file():
        return {}
    path = file or DEFAULT
    document = _document(path)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} is wrong: it has no settings.", "Write one a line, such as `port: 8000`.")
    return {str(name): value for name, value in cast("dict[object, object]", document).items()}


def _document(path: Path) -> object:
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
