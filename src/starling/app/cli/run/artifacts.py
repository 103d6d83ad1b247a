"""`starling run artifacts`: results that were too long for a model."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.run.run_key import parse_run_key
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_json, print_line, print_table, results, write
from starling.app.container.admin import open_admin
from starling.core.artifacts import Artifact, ArtifactContent
from starling.core.errors import InvalidRequestError, NotFoundError
from starling.core.principal import DEFAULT_TENANT
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey

app = typer.Typer(add_completion=False)

_SHOW = "`starling run artifacts RUN` shows the ids."


@app.command()
def artifacts(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The id of the run.")],
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or its beginning; prints its content.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List results that were too long for a model, or print one of them."""
    key, settings = parse_run_key(tenant, run), settings_of(context)
    if artifact:
        _print(*run_until_stopped(_read(settings, key, artifact)), as_json=as_json)
        return
    found = run_until_stopped(_listed(settings, key))
    if as_json:
        print_json([asdict(item) for item in found])
    elif found:
        print_table(("ARTIFACT", "CALL", "TOOL", "TYPE", "BYTES"), [_cells(item) for item in found])
    else:
        print_line("The run has no artifacts: no result was too long, or `starling db prune` removed them.")


async def _listed(settings: Settings, key: RunKey) -> Sequence[Artifact]:
    async with open_admin(settings) as admin:
        await admin.reader.record(key)
        return await admin.artifacts.of_run(key.tenant, key.id)


async def _read(settings: Settings, key: RunKey, wanted: str) -> tuple[str, ArtifactContent]:
    async with open_admin(settings) as admin:
        await admin.reader.record(key)
        ids = {item.id for item in await admin.artifacts.of_run(key.tenant, key.id) if item.id.startswith(wanted)}
        if len(ids) > 1:
            raise InvalidRequestError(f"{wanted!r} is the beginning of {len(ids)} artifacts.", "Write more of the id.")
        if not ids:
            raise NotFoundError("artifact", wanted, _SHOW)
        (found,) = ids
        return found, await admin.artifacts.read(key.tenant, key.id, found)


def _print(artifact: str, content: ArtifactContent, *, as_json: bool) -> None:
    """Print content unchanged into a pipe or file; on a terminal without control characters."""
    if as_json:
        print_json({"id": artifact, "media_type": content.media_type, "content": content.text})
    elif results().is_terminal:
        write(results(), f"{content.text}\n")
    else:
        results().file.write(content.text)
        results().file.flush()


def _cells(item: Artifact) -> tuple[str, ...]:
    return item.id, item.call_id, item.name, item.media_type, f"{item.bytes:,}"
