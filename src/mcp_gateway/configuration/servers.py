"""The `mcpServers` document that every MCP client reads, with Starling's settings under the key `x-starling`."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mcp_gateway.configuration.options import REMOVED_TESTS, ServerOptions, removed_tests
from starling.core.errors import ConfigurationError
from starling.core.json import (
    Json,
    JsonObject,
    RepeatedNameError,
    digest,
    storable,
    strings_in,
    without_repeated_names,
)
from starling.core.tools import ServerSource
from starling.core.validation_errors import fault_text

_STRING: Final = r'"(?:\\.|[^"\\\n])*"'
_COMMENT: Final = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")
_VISIBLE: Final = re.compile(r"[^\n]")
_TEXT_CHARS: Final = 100_000  # Linux starts no command with an argument or a variable of more than 131,071 bytes
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
EXECUTION_SERVICE: Final = "execution_service"  # the name of the server that the settings add
_EXAMPLE = '{"mcpServers": {"time": {"command": "mcp-server-time"}}}'


class _Server(BaseModel):
    # Keys of other MCP hosts are ignored and not stored.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    disabled: bool = False
    options: ServerOptions = Field(default=ServerOptions(), alias="x-starling")

    @property
    def document(self) -> JsonObject:
        """The configuration as it is stored: references unresolved, without other hosts' keys.

        An effect of the whole server that was written is kept, also if it is the default: so it counts as declared.
        """
        stored = self.model_dump(mode="json", by_alias=True, exclude_defaults=True) | self.model_dump(include={"type"})
        if "effect" in self.options.model_fields_set:
            stored["x-starling"] = {**stored.get("x-starling", {}), "effect": self.options.effect.value}
        return stored

    @cached_property
    def hash(self) -> str:
        """The digest of the unresolved configuration, independent of the order of keys; resolving keeps it."""
        return digest(self.document)


class StdioServer(_Server):
    """A server that is started as a process and exchanges messages over its standard streams."""

    type: Literal["stdio"] = "stdio"
    command: Annotated[str, Field(min_length=1)]
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None


class RemoteServer(_Server):
    """A server that is reached over HTTP; an execution service has two routes of its own and doesn't speak MCP."""

    type: Literal["http", "sse", "execution_service"] = "http"
    url: Annotated[str, Field(min_length=1)]
    headers: dict[str, str] = {}

    @field_validator("type", mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        return "http" if value in ("streamable-http", "streamableHttp", "streamable_http") else value


class InProcessServer(_Server):
    """A server in the platform's own process: an entry point `starling.servers` of an installed package."""

    type: Literal["inprocess"] = "inprocess"
    entry_point: Annotated[str, Field(min_length=1)]


class CheckedServer(RemoteServer):
    """A remote server that came over HTTP: connections to it are made to allowed addresses alone."""


type ServerConfig = StdioServer | RemoteServer | InProcessServer
type McpConfig = dict[str, ServerConfig]


def server_of(document: object, source: ServerSource = "file") -> ServerConfig:
    """Return the configuration of one server. Raises ValueError, of which pydantic's ValidationError is one."""
    if not isinstance(document, dict):
        raise ValueError("must be an object")
    if document.get("type") == "inprocess":
        return InProcessServer.model_validate(document)
    remote = "url" in document or document.get("type") not in (None, "stdio")
    by_url = CheckedServer if source == "api" else RemoteServer
    return (by_url if remote else StdioServer).model_validate(document)


def read_config(file: Path) -> McpConfig:
    """Read and check an `mcpServers` file. Raises ConfigurationError with the faulty keys."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(
            f"The MCP configuration {file} can't be read: {error}.",
            "Check the path given with --mcp-config or STARLING_MCP_CONFIG.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{file} is not UTF-8: {error.reason} at byte {error.start}.", "Save it in the encoding UTF-8."
        ) from None
    return parse_config(text, str(file))


def checked_server(name: str, document: object) -> ServerConfig:
    """Return the configuration of one server under its name. Raises ConfigurationError with the faulty keys."""
    config, faults = _validated(name, document)
    if config is None:
        wrong = "; ".join(fault.lstrip(".: ") for fault in faults)
        raise ConfigurationError(
            f"The server {name!r} isn't right: {wrong}.", "Nothing was changed; `starling server add --help` shows how."
        )
    return config


def parse_config(text: str, source: str) -> McpConfig:
    """Check the text of an `mcpServers` document; `source` names it in errors.

    Servers marked `disabled` are left out. Raises ConfigurationError with all faults.
    """
    wrong: list[str] = []
    found: McpConfig = {}
    for name, document in _servers_in(_json_of(text, source), source).items():
        config, faults = _validated(name, document)
        wrong += [f"mcpServers.{name}{fault}" for fault in faults]
        if config is not None and not config.disabled:
            found[name] = config
    if wrong:
        raise ConfigurationError(f"{source} is wrong: {'; '.join(wrong)}.", "Correct the file and try again.")
    return found


def without_comments(text: str) -> str:
    """Return `text` with spaces in place of comments and trailing commas: every other character keeps its place.

    So the places in the errors of a JSON parser stay true, which the libraries for such files don't offer.
    """
    plain = _COMMENT.sub(lambda found: found[1] or _VISIBLE.sub(" ", found[0]), text)
    return _TRAILING_COMMA.sub(lambda found: found[1] or " ", plain)


def _json_of(text: str, source: str) -> Json:
    try:
        with suppress(json.JSONDecodeError):  # long texts take a while to be freed of comments
            return json.loads(text, object_pairs_hook=without_repeated_names)
        return json.loads(without_comments(text), object_pairs_hook=without_repeated_names)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{source} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            "Correct the file at that place.",
        ) from None
    except RepeatedNameError as error:
        raise ConfigurationError(f"{source} is wrong: {error}.", "Give each its own name.") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, objects a thousand deep
        raise ConfigurationError(f"{source} can't be read: {error}.", "Correct the file and try again.") from None


def _servers_in(document: Json, source: str) -> dict[str, Any]:
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        keys = document if isinstance(document, dict) and "mcpServers" not in document else {}
        meant = _did_you_mean("mcpServers", keys)
        raise ConfigurationError(
            f"{source} is wrong: mcpServers: must be an object with one entry for each server{meant}.",
            f"It has to look like {_EXAMPLE}.",
        )
    return servers


def _validated(name: str, document: object) -> tuple[ServerConfig | None, list[str]]:
    """Return a server's configuration, or None, and its faults, each with its path: `.args[0]: …`."""
    faults = [] if _NAME.fullmatch(name) else [": a server's name has 1 to 48 letters, digits, _ or -"]
    try:
        config = server_of(document)
    except ValueError as error:
        return None, faults + _faults(error, document)
    faults += [f".x-starling.tools.{tool}: {REMOVED_TESTS}" for tool in removed_tests(document)]
    if isinstance(config, RemoteServer) and config.type == "execution_service" and {"?", "#"}.intersection(config.url):
        faults.append(".url: leave out what follows `?` or `#`: `/tools` and `/execute` are added at its end")
    if storable(config.document) != config.document:
        faults.append(": a text in it has a NUL or half a surrogate pair, or a number is too large")
    if (length := max(map(len, strings_in(config.document)))) > _TEXT_CHARS:
        faults.append(f": a text in it has {length:,} characters; the longest may have {_TEXT_CHARS:,}")
    return None if faults else config, faults


def _faults(error: ValueError, document: object) -> list[str]:
    if not isinstance(error, ValidationError):
        return [f": {error}"]
    found: list[str] = []
    for fault in error.errors():
        place, meant = fault["loc"], ""
        if fault["type"] == "missing" and len(place) == 1 and isinstance(document, dict):
            meant = _did_you_mean(str(place[0]), cast("Mapping[str, Any]", document))
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        found.append(f"{path}: {fault_text(fault, 'key')}{meant}")
    return found


def _did_you_mean(key: str, document: Mapping[str, Any]) -> str:
    near = get_close_matches(key.lower(), {name.lower(): name for name in document}, n=1)
    found = next((name for name in document if near and name.lower() == near[0]), None)
    return f" (did you mean {key} instead of {found}?)" if found else ""
