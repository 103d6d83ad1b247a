"""`starling server effects`, and the confirmation of effects that a server's annotations propose.

Effects of a server of an `mcpServers` file are written into it: the file is written anew, unless it has comments.
"""

import difflib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mcp_gateway.configuration.effect_suggestions import (
    EffectSuggestion,
    suggested_effects,
    with_effects,
    with_effects_of_tools,
)
from mcp_gateway.configuration.servers import McpConfig, ServerConfig, parse_config, server_of, without_comments
from mcp_gateway.registration.repository import ServerRow
from mcp_gateway.registration.server_rows import effective, known_row
from starling.app.cli.completion import Server
from starling.app.cli.options import Json, Yes
from starling.app.cli.platform.command_settings import settings_of
from starling.app.cli.platform.settings_file import MCP_FILE
from starling.app.cli.signals import run_with
from starling.app.cli.terminal.output import (
    diagnostics,
    print_json,
    print_line,
    print_table,
    progress,
    write,
    write_table,
)
from starling.app.cli.terminal.prompts import confirmed
from starling.app.container.database import find_database
from starling.app.container.services import open_services
from starling.app.container.storage import open_storage
from starling.core.errors import ConfigurationError, ConflictError, NotFoundError
from starling.core.json import JsonObject
from starling.core.settings.schema import Settings
from starling.core.tool_calls import Effect
from starling.infra.postgres.audit import Actor

app = typer.Typer(add_completion=False)
_BOM = b"\xef\xbb\xbf"
_DISABLED = re.compile(r'"disabled"\s*:\s*(true)')


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edit of an `mcpServers` file, in bytes, and what the file says after it."""

    file: Path
    before: bytes
    after: bytes
    config: McpConfig

    @classmethod
    def of(cls, file: Path, name: str, stored: ServerConfig, effects: Sequence[EffectSuggestion]) -> "FileEdit":
        """Return the edit that adds effects to a server.

        Raises ConfigurationError where the file has comments, or not the server as it is stored.
        """
        before, text = _read(file)
        found = parse_config(text, str(file)).get(name)
        if found is None or found.hash != stored.hash:
            raise ConfigurationError(f"{file} has no server {name} with the configuration that is in use.")
        if without_comments(text) != text:
            raise ConfigurationError(f"{file} has comments, or commas that JSON does not allow, which would be lost.")
        document = json.loads(text)
        server = document["mcpServers"][name]
        server["x-starling"] = with_effects_of_tools(server.get("x-starling"), effects)
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        return cls(file, before, _BOM * before.startswith(_BOM) + text.encode(), parse_config(text, str(file)))

    @classmethod
    def enabling(cls, file: Path, name: str) -> "FileEdit":
        """Return the edit that enables a server; comments and layout are kept.

        Raises NotFoundError where the file has no such server, ConfigurationError where it can't be edited.
        """
        before, text = _read(file)
        config = parse_config(text, str(file))
        if name in config:
            return cls(file, before, before, config)
        plain = without_comments(text)
        servers = json.loads(plain)["mcpServers"]
        if name not in servers:
            raise NotFoundError("server", name, f"{file} has these: {', '.join(servers) or 'none'}.")
        enabled = {**servers, name: {**servers[name], "disabled": False}}
        for place in _DISABLED.finditer(plain):
            edited = text[: place.start(1)] + "false" + text[place.end(1) :]
            if json.loads(without_comments(edited))["mcpServers"] == enabled:
                after = _BOM * before.startswith(_BOM) + edited.encode()
                return cls(file, before, after, parse_config(edited, str(file)))
        raise ConfigurationError(f'{file} has no `"disabled": true` in {name}.', "Enable it in the file yourself.")

    def changes_only(self, name: str, rows: Iterable[ServerRow]) -> bool:
        """Return whether the other servers of the file are the stored servers of files, unchanged."""
        stored = {row.name: row.config_hash for row in rows if row.source == "file" and row.name != name}
        return stored == {other: config.hash for other, config in self.config.items() if other != name}

    def show(self) -> None:
        """Print the changed lines on stderr."""
        before, after = (text.decode("utf-8-sig").splitlines() for text in (self.before, self.after))
        for line in difflib.unified_diff(before, after, str(self.file), str(self.file), lineterm=""):
            style = {"+": "green", "-": "red"}.get(line[:1])
            write(diagnostics(), f"{line}\n", style)

    def write(self) -> None:
        """Replace the file in one step; it keeps its permissions. Raises ConflictError where it has changed since."""
        file = self.file.resolve()
        if file.read_bytes() not in (self.before, self.after):
            raise ConflictError(f"{self.file} was changed meanwhile.", "Nothing was written; run the command again.")
        draft = file.with_name(f".{file.name}.{os.getpid()}.new")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(self.after)
                opened.flush()
                os.fsync(opened.fileno())
            shutil.copymode(file, draft)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)


@app.command()
def effects(
    context: typer.Context,
    name: Server,
    propose: Annotated[
        bool,
        typer.Option("--propose", help="Propose effects from the server's annotations, and set them if confirmed."),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Show the effects of a server's tools; with --propose, what its annotations propose for tools without one.

    Annotations are what a server says about itself: they count once you have confirmed them. Those of a server of a
    file are written into the file, unless it has comments.
    """
    settings = settings_of(context)
    rows, definitions = _stored_servers(settings)
    row = known_row(name, rows)
    config, options = server_of(row.config), effective(row).options
    known = {tool: options.effect_of(tool).value for tool in sorted(row.tools)}
    proposed = suggested_effects({tool: definitions[name, tool] for tool in row.tools}, options) if propose else []
    chosen = useful_of(proposed)
    if not as_json and not propose:
        print_table(("TOOL", "EFFECT"), known.items())
        return
    if not as_json and not chosen:
        print_line(f"The annotations of {name} propose no other effect for a tool that has none set.")
        return
    epoch = None
    if chosen and row.source == "file":
        epoch = _set_in_file(settings, config, name, chosen, yes=yes, quiet=as_json)
    elif chosen := confirmed_effects(name, proposed, yes=yes, quiet=as_json):
        services, wanted = open_services(settings, find_database(settings)), with_effects(config, chosen)
        report = run_with(services, lambda opened: opened.registry.reconfigure(name, wanted, Actor.local("cli")))
        epoch = report.epoch
    if as_json:
        print_json({"name": name, "effects": known, "proposed": documents_of(proposed), "epoch": epoch})
    elif epoch is not None:
        listed = ", ".join(f"{item.tool} {item.effect.value}" for item in chosen)
        print_line(f"{name} has these effects in epoch {epoch}: {listed}.")


def confirmed_effects(
    name: str, proposed: Sequence[EffectSuggestion], *, yes: bool, quiet: bool
) -> list[EffectSuggestion]:
    """Return the proposed effects that are to be set: on a terminal those that a person confirms, with `yes` all.

    Elsewhere none is set, and what `--yes` would set is printed on stderr, unless `quiet`.
    """
    useful = useful_of(proposed)
    if not useful:
        return []
    if not (yes or quiet):
        write(diagnostics(), f"{name} describes its own tools as follows (other tools stay `unsafe`):\n")
        rows = [(item.tool, item.effect.value, item.reason) for item in useful]
        write_table(diagnostics(), ("TOOL", "EFFECT", "ANNOTATIONS"), rows)
    otherwise = "Not set: `--yes` sets these effects."
    return useful if confirmed("Set these effects?", yes=yes, quiet=quiet, otherwise=otherwise) else []


def useful_of(proposed: Sequence[EffectSuggestion]) -> list[EffectSuggestion]:
    """Return the proposed effects that say more than that a tool is `unsafe`, as every tool is by default."""
    return [item for item in proposed if item.effect is not Effect.UNSAFE]


def documents_of(proposed: Sequence[EffectSuggestion]) -> list[dict[str, str]]:
    """Return proposed effects as JSON."""
    return [{"tool": item.tool, "effect": item.effect.value, "annotations": item.reason} for item in proposed]


def _set_in_file(
    settings: Settings, config: ServerConfig, name: str, useful: Sequence[EffectSuggestion], *, yes: bool, quiet: bool
) -> int | None:
    """Write effects into the file that the server is from, and return the epoch that has them, if there is one."""
    try:
        edit = FileEdit.of(settings.mcp_config or MCP_FILE, name, config, useful)
    except ConfigurationError as error:
        options = with_effects(config, useful).document["x-starling"]
        where = f"into {name} of its mcpServers"
        write(diagnostics(), f"{error.message} Write this yourself {where}, then `starling registry reload`:\n")
        if not quiet:
            print_line(f'"x-starling": {json.dumps(options, indent=2, ensure_ascii=False)}')
        return None
    if not quiet:
        edit.show()
    otherwise = f"Not written: `--yes` writes this to {edit.file}."
    if not confirmed(f"Write this to {edit.file}?", yes=yes, quiet=quiet, otherwise=otherwise):
        return None
    return applied(settings, edit, name)


def applied(settings: Settings, edit: FileEdit, name: str) -> int | None:
    """Write the file and reload it; return the epoch, None where the file would change other servers, too."""
    rows, _ = _stored_servers(settings)
    edit.write()
    if not edit.changes_only(name, rows):
        hint = "`starling registry plan` shows what else it changes, `starling registry reload` applies it."
        write(diagnostics(), f"{edit.file} is written. {hint}\n")
        return None
    with progress(f"Listing {name} …"):
        services = open_services(settings, find_database(settings))
        return run_with(services, lambda opened: opened.registry.reload(edit.config, Actor.local("cli"))).epoch


def _read(file: Path) -> tuple[bytes, str]:
    try:
        content = file.read_bytes()
        return content, content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}.", "`starling init` writes an mcp.json.") from None


def _stored_servers(settings: Settings) -> tuple[Sequence[ServerRow], Mapping[tuple[str, str], JsonObject]]:
    storage = open_storage(settings, find_database(settings))
    return run_with(storage, lambda opened: opened.servers.servers_and_tools())
