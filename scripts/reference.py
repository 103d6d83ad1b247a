"""Writes docs/reference/ from the code: settings, commands, routes and events. A test fails where the pages differ."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup
from typer.main import get_command

from starling.app.cli.root_command import app as command_line
from starling.app.http.api_routes import described
from starling.core.events.stream import ANY_EVENT
from starling.core.governance import GovernanceRow
from starling.core.settings.schema import Limits, Settings

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
_LIMITS: Final = "Members of `limits`. A request may ask for lower limits of its run, never for higher ones."
_ROWS: Final = "Members of a row of `governance`. [Governance](../guides/governance.md) says how rows add up."
_WRITTEN: Final = "This page is written by `make reference` from the code."


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    for name, lines in (
        ("settings", _settings()),
        ("commands", _commands()),
        ("routes", _routes()),
        ("events", _events()),
    ):
        yield name, "\n".join([*lines, ""])


def _settings() -> Iterator[str]:
    yield from ("# Settings", "", _WRITTEN, "")
    yield "Set environment variables, or names in `starling.yaml`; variables override the file. In the environment,"
    yield "values with several members (`STARLING_PROVIDERS`, `STARLING_PROMPT_NAMES`, `STARLING_GOVERNANCE`,"
    yield "`STARLING_LIMITS`) are JSON. An unknown name is an error."
    yield from ("", "| variable | in `starling.yaml` | default | meaning |", "| --- | --- | --- | --- |")
    for name, field in Settings.model_fields.items():
        choices: Any = getattr(field.validation_alias, "choices", [])
        variables = ", ".join(f"`{one}`" for one in choices if one.isupper())
        yield f"| {variables} | `{name}` | {_default(field)} | {field.description} |"
    yield from (
        "",
        "## Limits",
        "",
        "Members of `limits`. A request may ask for lower limits of its run, never for higher ones.",
        "",
    )
    yield from ("| limit | default | meaning |", "| --- | --- | --- |")
    for name, field in Limits.model_fields.items():
        yield f"| `{name}` | {_default(field)} | {field.description} |"
    yield from ("", "## Governance", "", _ROWS, "")
    yield from ("| member | meaning |", "| --- | --- |")
    for name, field in GovernanceRow.model_fields.items():
        yield f"| `{name}` | {field.description} |"


def _default(field: FieldInfo) -> str:
    default: Any = field.default
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""
    if default in (None, "", ()) or isinstance(default, SecretStr):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:_}`" if isinstance(default, int) and default >= 10_000 else f"`{default}`"


def _commands() -> Iterator[str]:
    yield from ("# Commands", "", _WRITTEN, "", "Every command has `--help`.", "")
    root: Any = get_command(command_line)
    for name in root.commands:
        yield from _command(root, ("starling", name))


def _command(parent: Any, path: tuple[str, ...]) -> Iterator[str]:
    context = typer.Context(parent, info_name=" ".join(path[:-1]))
    _, command, _ = parent.resolve_command(context, [path[-1]])
    own = typer.Context(command, info_name=path[-1])
    if isinstance(command, TyperGroup):
        yield from (f"## {' '.join(path)}", "", _text(command.help), "")
        for name in command.list_commands(own):
            yield from _command(command, (*path, name))
        return
    usage = " ".join((*path, *command.collect_usage_pieces(own)))
    heading = "##" if len(path) == 2 else "###"
    yield from (f"{heading} {' '.join(path)}", "", f"`{usage}`", "", _text(command.help), "")
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    if shown:
        yield from ("| option | meaning |", "| --- | --- |")
        for one in shown:
            names = (
                (*one.opts, *one.secondary_opts)
                if one.param_type_name == "option"
                else (one.metavar or one.name.upper(),)
            )
            yield f"| {', '.join(f'`{name}`' for name in names)} | {_text(getattr(one, 'help', ''))} |"
        yield ""


def _routes() -> Iterator[str]:
    yield from ("# Routes", "", _WRITTEN, "")
    yield "`GET /docs` shows every field with examples, `GET /openapi.json` is the schema. Errors are"
    yield "`application/problem+json`. Any route may answer 401 (no key, or a wrong one), 403 (a key that may not) and"
    yield "429 (too many requests), too."
    yield ""
    tag = None
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            if operation.get("tags", [""])[0] != tag:
                tag = operation.get("tags", [""])[0]
                yield from ("", f"## {tag}", "", "| route | what it does | statuses |", "| --- | --- | --- |")
            text = _text(operation.get("description") or operation["summary"])
            statuses = sorted(operation["responses"].keys() - {"401", "403", "429"})
            yield f"| `{method.upper()} {path}` | {text} | {', '.join(statuses)} |"


def _events() -> Iterator[str]:
    yield from ("# Events", "", _WRITTEN, "")
    yield "Each event of a stream has a number, its SSE id. Its data repeat the `type`. Fields may be added, never"
    yield "removed."
    yield ""
    schema = ANY_EVENT.json_schema()
    definitions: Mapping[str, Any] = schema["$defs"]
    for reference in schema["discriminator"]["mapping"].values():
        event = definitions[reference.rpartition("/")[2]]
        yield from (f"## {event['properties']['type']['const']}", "", _text(event["description"]), "")
        fields = {name: one for name, one in event["properties"].items() if name != "type"}
        if fields:
            yield from ("| field | type |", "| --- | --- |")
            for name, one in fields.items():
                yield f"| `{name}` | {_type(one, definitions)} |"
            yield ""


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        target = definitions[reference.rpartition("/")[2]]
        members = ", ".join(target.get("properties", ()))
        return f"`{{{members}}}`" if members else _type(target, definitions)
    if choices := schema.get("anyOf"):
        return " or ".join(_type(one, definitions) for one in choices)
    if named := schema.get("enum"):
        return ", ".join(f"`{one}`" for one in named)
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], definitions)}"
    return str(schema.get("format") or schema.get("type") or "any")


def _text(text: str | None) -> str:
    """Return a text as one line that can stand in a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
