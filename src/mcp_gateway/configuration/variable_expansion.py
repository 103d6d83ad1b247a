"""References to variables in a configuration: expanded when it is used and never stored; their values are secrets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_gateway.configuration.servers import InProcessServer, McpConfig, ServerConfig, StdioServer
from starling.core.errors import ServerUnavailableError
from starling.core.secrets.known import KnownSecrets, passwords_of
from starling.core.secrets.look_alikes import is_secret_name

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

    changed: dict[str, Any]
    if isinstance(config, StdioServer):
        inherited = {name: environment[name] for name in INHERITED if name in environment}
        changed = {
            "command": expand(config.command),
            "args": tuple(map(expand, config.args)),
            "env": inherited | {name: expand(value) for name, value in config.env.items()},
            "cwd": expand(config.cwd) if config.cwd is not None else None,
        }
    elif isinstance(config, InProcessServer):
        changed = {}
    else:
        headers = {name: expand(value) for name, value in config.headers.items()}
        changed = {"url": expand(config.url), "headers": headers}
    return Resolved(config.model_copy(update=changed), frozenset(values))


def variables_in(text: str) -> list[tuple[str, str]]:
    """Return the variables that a text refers to, each with its default, empty where there is none."""
    found = (_VARIABLE.fullmatch(match["body"]) for match in _REFERENCE.finditer(text))
    return [(variable["name"], variable["default"] or "") for variable in found if variable]


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


_SCHEME: Final = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


def secret_values(config: McpConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets that servers are configured with, by name.

    These are what `${NAME}` stands for in `env`, `headers` and `url`, unless the server's `plain` lists NAME; passwords
    in addresses; and values whose name says that they are secret, by `server.NAME`.
    """
    found: dict[str, str] = {}
    for server, one in config.items():
        if isinstance(one, InProcessServer):
            continue
        named = {**one.env} if isinstance(one, StdioServer) else {**one.headers, "url": one.url}
        for key, text in named.items():
            for variable, default in variables_in(text):
                if variable not in INHERITED and variable not in one.options.plain:
                    found[variable] = environment.get(variable) or default
            found |= {f"{server}.{key}": password for password in passwords_of(text) if "${" not in password}
            if is_secret_name(key) and "${" not in text:
                found[f"{server}.{key}"] = _SCHEME.sub("", text, count=1)
    return found
