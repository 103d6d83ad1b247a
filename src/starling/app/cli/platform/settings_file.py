"""The settings file: YAML, read once."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from starling.core.errors import ConfigurationError

DEFAULT: Final = Path("starling.yaml")
MCP_FILE: Final = Path("mcp.json")  # of the current folder
_CHECK_PATH: Final = "Check the path given with --settings."


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
    yaml = import_module("yaml")  # takes 15 ms: most commands have no file to read
    try:
        document = _parsed(yaml, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"There is no settings file {path}.", _CHECK_PATH) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}.", _CHECK_PATH) from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        if mark := getattr(error, "problem_mark", None):
            reason = f"{getattr(error, 'problem', '')} at line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path} is not YAML: {reason}.", "Correct the file at that place.") from None
    except RecursionError:
        raise ConfigurationError(f"{path} can't be read: it is nested too deep.", "Correct the file.") from None
    if not isinstance(document, dict | None):
        raise ConfigurationError(f"{path} is wrong: it has no settings.", "Write one a line, such as `port: 8000`.")
    return {str(name): value for name, value in cast("dict[object, object]", document or {}).items()}


def _parsed(yaml: Any, text: str) -> object:
    """Return the content of a YAML document; a name that stands twice in a mapping is a fault."""

    def compose_mapping_node(loader: Any, anchor: Any) -> Any:
        node, names = yaml.SafeLoader.compose_mapping_node(loader, anchor), set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"the name {key.value!r} is used twice", problem_mark=key.start_mark)
            names.add(key.value)
        return node

    return yaml.load(text, type("Loader", (yaml.SafeLoader,), {"compose_mapping_node": compose_mapping_node}))
