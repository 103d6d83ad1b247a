"""What a document over HTTP may have started and sent: commands of a setting, and none of the platform's secrets."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from mcp_gateway.configuration import address_rules
from mcp_gateway.configuration.address_rules import PUBLIC_ONLY, AddressRules
from mcp_gateway.configuration.servers import InProcessServer, McpConfig, RemoteServer, ServerConfig, StdioServer
from mcp_gateway.configuration.variable_expansion import variables_in
from starling.core.errors import ForbiddenError

_REMEDY: Final = (
    "Add it on its machine, with `starling server add` or `starling registry reload`, or allow its command there with "
    "the setting `stdio_over_http`."
)
_CODE_REMEDY: Final = "Add it on its machine: to the `mcpServers` file, with `starling registry reload`."
_OWN_REMEDY: Final = "Refer to a variable of the server's own, or add it on its machine."
# Programs that run whatever their arguments say: no argument list makes them harmless.
_NEVER: Final = re.compile(
    r"ash|bash|busybox|chroot|csh|dash|doas|docker|env|fish|ksh|lua|nice|nohup|nsenter|parallel|perl|php|podman|ruby|script"
    r"|setsid|sh|ssh|stdbuf|strace|su|sudo|tclsh|timeout|unshare|watch|xargs|zsh"
)
# Interpreters and package runners: what follows them may be a script or a package, never an option.
_LAUNCHERS: Final = re.compile(r"(?:python|pypy)[0-9.]*|node|nodejs|bun|deno|npx|pnpx|uvx|uv|pipx|npm|pnpm|yarn|java")
# Variables by which a process loads code, finds other programs, or is led elsewhere.
VARIABLES: Final = re.compile(
    r"(?:LD|DYLD|NODE|NPM|JAVA|JDK|GIT|UV|PIPX?|DENO|BUN|BUNDLE|GLIBC)_.*|(?:PYTHON|BASH|PERL|RUBY).*|_JAVA_OPTIONS"
    r"|ENV|PATH|IFS|HOME|XDG_.*|PREFIX|SHELLOPTS|PS4|PROMPT_COMMAND|TMPDIR|(?:HTTPS?_|ALL_)?PROXY|SSL_.*|.*_PRELOAD",
    re.IGNORECASE,
)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class StdioRules:
    """Decides on servers that come over HTTP.

    `allowed` are command lines: a command with its first arguments, or a folder that ends with a slash, whose programs
    are allowed. No command is allowed without one. `secrets` are the variables of the platform's own settings that no
    server with a `url` may be sent. `addresses` decides on a `url`, as far as it names an address.
    """

    allowed: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    addresses: AddressRules = PUBLIC_ONLY

    def check(self, servers: McpConfig, known: Mapping[str, str]) -> None:
        """Raise ForbiddenError for the first server that is new or changed and not allowed.

        `known` are the hashes of the stored configurations by name.
        """
        for name in inactive(servers, known):
            server = servers[name]
            reason, remedy = "", _REMEDY
            if isinstance(server, StdioServer):
                reason = self.refusal(server)
            elif isinstance(server, InProcessServer):
                reason, remedy = "it would run code in the platform's own process", _CODE_REMEDY
            elif found := next((variable for variable in _sent(server) if variable in self.secrets), None):
                reason, remedy = f"it would be sent {found}, a secret of the platform itself", _OWN_REMEDY
            elif "${" not in server.url:  # else the address is known when it is connected to
                reason, remedy = self.addresses.url_fault(server.url), address_rules.REMEDY
            if reason:
                raise ForbiddenError(f"The server {name!r} can't be added or changed over HTTP: {reason}.", remedy)

    def refusal(self, server: StdioServer) -> str:
        """Return why a server may not be started for a document that came over HTTP; empty if it may."""
        if not self.allowed:
            return "it would start a command on the machine of the platform"
        command = server.command
        texts = (command, *server.args, *server.env, *server.env.values())
        if found := next((text for text in texts if "${" in text), None):
            return f"{found!r} refers to a variable of the platform"
        if _UNPRINTABLE.search("".join(texts)) or command != command.strip():
            return "its command, an argument or a variable has a line break or another control character"
        if found := next((name for name in server.env if VARIABLES.fullmatch(name)), None):
            return f"the variable {found} could make it run something else"
        if server.cwd is not None:
            return "`cwd` can't be set"
        return self._command_refusal(command, server.args)

    def _command_refusal(self, command: str, arguments: Sequence[str]) -> str:
        fitting = [rest for line in self.allowed if (rest := _beyond(line, command, arguments)) is not None]
        if not fitting:
            return f"the command {command!r} is not allowed"
        beyond = min(fitting, key=len)
        program = PurePath(os.path.realpath(shutil.which(command) or command)).name
        for name in (PurePath(command).name, program):
            if _NEVER.fullmatch(name):
                return f"{command!r} runs whatever its arguments say"
            if _LAUNCHERS.fullmatch(name) and (option := next((a for a in beyond if a.startswith("-")), None)):
                return f"the option {option!r} of {command!r} is not allowed"
        return ""


def inactive(servers: McpConfig, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of servers that are not stored with this configuration."""
    return tuple(name for name, server in servers.items() if known.get(name) != server.hash)


def reason_not_to_list(server: ServerConfig) -> str:
    """Return why a plan over HTTP doesn't list a server that isn't stored so; empty if it does."""
    if isinstance(server, StdioServer | InProcessServer):
        return "it isn't started for a plan over HTTP."
    sent = ", ".join(_sent(server))
    return f"a plan over HTTP sends no variable to a new address: {sent}." if sent else ""


def _sent(server: RemoteServer) -> list[str]:
    """Return the variables whose values a server with a `url` is sent."""
    return [name for text in (server.url, *server.headers.values()) for name, _ in variables_in(text)]


def _beyond(line: str, command: str, arguments: Sequence[str]) -> Sequence[str] | None:
    """Return the arguments after those of an allowed line; None where the line is about something else."""
    if line.endswith("/"):  # the program has to be directly in the folder, also after links are followed
        folder, program = Path(line), Path(command)
        is_listed = program.is_absolute() and ".." not in program.parts and program.parent == folder
        is_within = is_listed and Path(os.path.realpath(program)).parent == Path(os.path.realpath(folder))
        return arguments if is_within else None
    first, *fixed = shlex.split(line) or [""]
    if not first or command != first or list(arguments[: len(fixed)]) != fixed:
        return None
    return arguments[len(fixed) :]
