"""Expands references in a configuration at the moment of use; results are never stored."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_gateway.configuration.servers import RemoteServer, ServerConfig, StdioServer
from starling.core.errors import ServerUnavailableError
from starling.core.secrets.known import KnownSecrets

_SHORTEST_SECRET = 6
_REFERENCE = re.compile(r"\$\{(?P<body>[^{}]*)\}")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)

# All that a stdio server gets to see of our environment, which also holds keys and the database's address.
INHERITED: Final = frozenset(
    "HOME LANG LC_ALL LC_CTYPE LOGNAME PATH SHELL SSL_CERT_DIR SSL_CERT_FILE TERM TMPDIR TZ USER".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration ready for use, and the values that came from references, which are secrets."""

    config: ServerConfig
    values: frozenset[str] = field(repr=False)

    def mask(self, text: str) -> str:
        """Return `text` with the secret values masked; short values stay, because they are parts of ordinary words."""
        return KnownSecrets((("", value) for value in self.values), shortest=_SHORTEST_SECRET).mask_beginning(text)


def resolve(server: str, config: ServerConfig, environment: Mapping[str, str]) -> Resolved:
    """Return `config` with each `${VAR}` and `${VAR:-default}` replaced, and `env` made whole for a stdio server.

    Raises ServerUnavailableError that names the variable that isn't set.
    """
    values: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        value = _value(server, match["body"], environment)
        if match["body"] not in INHERITED:
            values.add(value)
        return value

    def expand(text: str) -> str:
        return _REFERENCE.sub(replaced, text)

    return Resolved(_expanded(config, expand, environment), frozenset(values))


def variables_in(text: str) -> list[tuple[str, str]]:
    """Return the variables that a text refers to, each with its default, empty where there is none."""
    found = (_VARIABLE.fullmatch(match["body"]) for match in _REFERENCE.finditer(text))
    return [(variable["name"], variable["default"] or "") for variable in found if variable]


def _expanded(config: ServerConfig, expand: Callable[[str], str], environment: Mapping[str, str]) -> ServerConfig:
    match config:
        case StdioServer():
            inherited = {name: environment[name] for name in INHERITED if name in environment}
            return config.model_copy(
                update={
                    "command": expand(config.command),
                    "args": tuple(map(expand, config.args)),
                    "env": inherited | {name: expand(value) for name, value in config.env.items()},
                    "cwd": expand(config.cwd) if config.cwd is not None else None,
                }
            )
        case RemoteServer():
            headers = {name: expand(value) for name, value in config.headers.items()}
            return config.model_copy(update={"url": expand(config.url), "headers": headers})


def _value(server: str, body: str, environment: Mapping[str, str]) -> str:
    if body.startswith("secret:"):
        raise ServerUnavailableError(
            server,
            f"the secret {body.removeprefix('secret:')!r} can't be read: stored secrets are not available yet.",
            "Put the value into an environment variable and refer to it as ${NAME}.",
        )
    variable = _VARIABLE.fullmatch(body)
    if variable is None:
        raise ServerUnavailableError(
            server,
            f"${{{body}}} can't be understood.",
            "Write ${NAME} or ${NAME:-default} for an environment variable.",
        )
    value = environment.get(variable["name"]) or variable["default"]
    if value is None and variable["name"] not in environment:
        raise ServerUnavailableError(
            server,
            f"the environment variable {variable['name']} is not set.",
            f"Set {variable['name']} and start again.",
        )
    return value or ""
