"""The settings that a command needs to find the API, read without the libraries that check all settings."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starling.core.errors import ConfigurationError

EMBEDDED: Final = "embedded"
"""The `database_name` of the embedded database."""
ENVIRONMENT_FILE: Final = Path("starling.env")
_PORTS: Final = range(65_536)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where a command looks for the API.

    `url` is STARLING_URL, empty if it isn't set; `default_url` comes from STARLING_HOST and PORT. `database` is the
    `database_name` of DATABASE_URL, `mcp_config` the file of STARLING_MCP_CONFIG. `governs`: a
    governance table may be set, since there is a settings file, which may misspell it, or STARLING_GOVERNANCE.
    """

    data_dir: Path
    url: str
    default_url: str
    api_key: str
    database: str
    log_level: str
    mcp_config: Path | None = None
    governs: bool = False


def read_environment_file() -> None:
    """Set the variables of `starling.env` in this folder that have no value yet. Raises ConfigurationError."""
    try:
        lines = ENVIRONMENT_FILE.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{ENVIRONMENT_FILE} can't be read: {error}.") from None
    for number, line in enumerate(map(str.strip, lines), start=1):
        name, given, value = map(str.strip, line.partition("="))
        if line and not line.startswith("#"):
            if not (name and given) or "\0" in line:
                raise ConfigurationError(f"{ENVIRONMENT_FILE} is wrong: line {number} is not NAME=VALUE, in text.")
            os.environ[name] = os.environ.get(name) or value  # noqa: TID251


def default_data_dir() -> Path:
    """Return the data folder of a user who sets none."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "starling"  # noqa: TID251


def read_client_settings(file_values: Mapping[str, Any]) -> ClientSettings | None:
    """Return the settings; variables of the environment precede `file_values`, unless they are empty.

    `file_values` is the content of the settings file. None where one of them is wrong: `load_settings` says which one.
    """

    def text(variable: str, name: str) -> str:
        """Return the value of a setting as text, empty if it isn't set."""
        return os.environ.get(variable) or str(file_values.get(name, ""))  # noqa: TID251

    port = text("PORT", "port") or "8000"
    if not (port.isascii() and port.isdigit() and int(port) in _PORTS):
        return None
    host = text("STARLING_HOST", "host") or "127.0.0.1"
    folder = text("STARLING_DATA_DIR", "data_dir")
    servers = text("STARLING_MCP_CONFIG", "mcp_config")
    return ClientSettings(
        data_dir=Path(folder) if folder else default_data_dir(),
        url=text("STARLING_URL", "url"),
        default_url=f"http://{f'[{host}]' if ':' in host else host}:{port}",
        api_key=text("STARLING_API_KEY", "api_key"),
        database=database_name(text("DATABASE_URL", "database_url")),
        log_level=text("LOG_LEVEL", "log_level").upper(),
        mcp_config=Path(servers) if servers else None,
        governs=bool(file_values or text("STARLING_GOVERNANCE", "governance")),
    )


def database_name(url: str) -> str:
    """Return a short name of the database at `url` that doesn't reveal it; `embedded` for an empty address."""
    if not url:
        return EMBEDDED
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port or 5432}{parts.path}?{parts.query}"
    except ValueError:
        place = url
    return hashlib.sha256(place.encode()).hexdigest()[:16]
