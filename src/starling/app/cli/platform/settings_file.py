"""The settings file: YAML, read once."""

from pathlib import Path
from typing import Any, cast

from starling.app.cli import deferred
from starling.core.errors import ConfigurationError

DEFAULT = Path("starling.yaml")
MCP_FILE = Path("mcp.json")  # of the current folder


def is_here(file: Path) -> bool:
    """Return whether a file of the current folder is there; False in a folder that this user can't enter."""
    try:
        return file.is_file()
    except PermissionError:
        return False


def read_settings_file(file: Path | None) -> dict[str, Any]:
    """Return the content of `file`; without one, that of `starling.yaml` in this folder if it exists.

    Raises ConfigurationError with the place of the fault.
    """
    if file is None and not is_here(DEFAULT):
        return {}
    path = file or DEFAULT
    document = deferred.yaml_file().read_yaml(path)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} is wrong: it has no settings.", "Write one a line, such as `port: 8000`.")
    return {str(name): value for name, value in cast("dict[object, object]", document).items()}
