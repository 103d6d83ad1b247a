"""What 500 active teams of a tenant cost: a reload of the registry, and the prompts of a run that needs no team."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import orjson

from architect.compiler import compile_team
from architect.repository import Creator, TeamKey, TeamRepository
from architect.team_world import TeamWorld
from bench import figures
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import server_rows
from bench.platform_process import Place, Platform, admin_session, up
from bench.prompt_length import add_servers, catalogue, recorded
from brain.registry.manifest import Manifest
from brain.registry.repository import EpochRepository, StarRepository
from brain.registry.team_cards import with_team
from starling.core.principal import DEFAULT_TENANT
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import Engine, open_engine

NAMES: Final = ("registry.reload_ms_500_teams", "run.prompt_chars_500_teams")
TEAMS, SERVERS = 500, 300
_RELOADS = 5
_OWN = ("tides", "library")  # the servers of the run; no team uses them


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure a platform with 300 servers, then with the teams too."""
    setup.say(f"{TEAMS} teams among {SERVERS} servers")
    alone = await recorded(setup, setup.place("without-teams"))
    place = setup.place("teams")
    async with catalogue() as url:
        add_servers(place, url, SERVERS)
        async with up(place) as (platform, _):
            before = [await _reload(place, platform, turn) for turn in range(_RELOADS)]
            await _add_teams(platform.database)
            after = [await _reload(place, platform, turn) for turn in range(_RELOADS, 2 * _RELOADS)]
        among = await recorded(setup, place)
    chars, few = (sum(map(figures.prompt_chars, bodies)) for bodies in (among, alone))
    return [
        Figure("registry.reload_ms_500_teams", median(after), "ms", median(before), "without teams"),
        Figure("run.prompt_chars_500_teams", chars, "", few, "with two servers"),
    ]


async def _reload(place: Place, platform: Platform, turn: int) -> float:
    """Return the milliseconds of a reload that changes one server."""
    document = _changed(place.folder / "mcp.json", turn)
    begun = perf_counter()
    async with (
        admin_session(platform, place) as session,
        session.post("/v1/registry/reload", json=document) as response,
    ):
        if response.status != 200:
            raise RuntimeError(f"the reload was refused: {await response.text()}")
    return (perf_counter() - begun) * 1000


def _changed(file: Path, turn: int) -> dict[str, Any]:
    document = orjson.loads(file.read_bytes())
    name = next(name for name in document["mcpServers"] if name not in _OWN)
    document["mcpServers"][name]["x-starling"]["description"] += f" {turn}"
    return document


async def _add_teams(database: str) -> None:
    engine = open_engine(database)
    try:
        await _store(engine)
    finally:
        await engine.dispose()


async def _store(engine: Engine) -> None:
    """Store and activate the teams as the service does, in one epoch instead of 500."""
    epochs, stars, teams = EpochRepository(engine), StarRepository(engine), TeamRepository(engine)
    actor, creator = Actor.local("bench"), Creator("local", None)
    async with teams.changing() as connection:
        manifest = (await epochs.begin(connection)).manifest
        made, world = manifest, _world(manifest)
        for spec in _specs(sorted(world.servers.keys() - _OWN)):
            star = compile_team(spec, world, creator=None, activator=None)
            await teams.add(connection, DEFAULT_TENANT, spec, creator)
            await stars.save(connection, DEFAULT_TENANT, star)
            await teams.activate(connection, TeamKey(DEFAULT_TENANT, spec.name), 1, star.hash, "local")
            made = with_team(made, DEFAULT_TENANT, star)
        await epochs.activate(connection, actor, lambda _: made)


def _world(manifest: Manifest) -> TeamWorld:
    servers = manifest.servers.items()
    return TeamWorld({name: {tool: pin.effect for tool, pin in entry.tools.items()} for name, entry in servers})


def _specs(servers: Sequence[str]) -> Iterator[TeamSpec]:
    """Return teams of two members with servers and a writer each; what they are good for is what real servers are."""
    for number, row in enumerate(server_rows("stabletoolbench", TEAMS)):
        members: list[dict[str, Any]] = [
            {
                "name": f"user_{place}",
                "role": f"User of {server}",
                "goal": f"Find what {server} has about the task.",
                "server": server,
            }
            for place, server in enumerate((servers[number % len(servers)], servers[number * 7 % len(servers)]))
        ]
        writer = {"name": "writer", "role": "Writer", "goal": "Write down what was found."}
        purpose = (row["description"] or row["server"])[:300]
        yield TeamSpec.model_validate({"name": f"team_{number}", "purpose": purpose, "members": [*members, writer]})
