"""The secrets in the configurations of servers."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mcp_gateway.configuration.servers import McpConfig, ServerConfig, StdioServer
from mcp_gateway.configuration.variable_expansion import INHERITED, variables_in
from starling.core.secrets.encodings import passwords_of
from starling.core.secrets.redaction import is_secret_name

_SCHEME: Final = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


def secret_values(config: McpConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets that servers are configured with, by name.

    These are what `${NAME}` stands for in `env`, `headers` and `url`, unless the server's `plain` lists NAME; passwords
    in addresses; and values whose name says that they are secret, by `server.NAME`.
    """
    return {name: value for server, one in config.items() for name, value in _values(server, one, environment)}


def _values(server: str, config: ServerConfig, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named = {**config.env} if isinstance(config, StdioServer) else {**config.headers, "url": config.url}
    for key, text in named.items():
        for variable, default in variables_in(text):
            if variable not in INHERITED and variable not in config.options.plain:
                yield variable, environment.get(variable) or default
        yield from ((f"{server}.{key}", password) for password in passwords_of(text) if "${" not in password)
        if is_secret_name(key) and "${" not in text:
            yield f"{server}.{key}", _SCHEME.sub("", text, count=1)
