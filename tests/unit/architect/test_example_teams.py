"""The teams of `examples/teams`: they keep all rules with the servers that are configured beside them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from architect.checks import NOTES, checked
from architect.compiler import compile_team
from architect.proof import case_findings
from architect.spec_format import read_team
from architect.team_world import TeamWorld
from mcp_gateway.configuration.servers import ServerConfig, read_config
from starling.core.teams.spec import TeamSpec, team_schema
from starling.core.teams.stars import StarLimits
from starling.core.tool_calls import Effect

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "teams"
LISTINGS = json.loads((ROOT / "tests/data/mcp_listings/listings.json").read_text("utf-8"))
FETCH = ["fetch"]  # mcp-server-fetch 2026.10.24, whose dependencies are not those of the other servers


@pytest.fixture(scope="module")
def servers() -> Mapping[str, ServerConfig]:
    return read_config(FOLDER / "mcp.json")


@pytest.fixture(scope="module")
def world(servers: Mapping[str, ServerConfig]) -> TeamWorld:
    return TeamWorld(
        {name: {tool: effect(config, tool) for tool in listed(name)} for name, config in servers.items()},
        builtins=("generalist", "coder"),
    )


def listed(server: str) -> list[str]:
    return FETCH if server == "fetch" else [tool["name"] for tool in LISTINGS[server]["tools"]]


def effect(config: ServerConfig, tool: str) -> Effect:
    own = config.options.tools.get(tool)
    return (own and own.effect) or config.options.effect or Effect.UNSAFE


def spec(name: str) -> TeamSpec:
    return read_team((FOLDER / f"{name}.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", ["research", "coding"])
def test_example_keeps_all_rules_with_the_servers_beside_it_and_can_be_proved(name: str, world: TeamWorld) -> None:
    team = spec(name)

    star = compile_team(team, world, creator=None, activator=None)

    assert checked(team, world) == case_findings(team, (), world) == []
    assert set(star.tools) == set(team.grants.tools)
    assert len(team.examples) == 2


def test_every_configured_server_is_used_and_every_tool_with_an_effect_of_its_own_exists(
    servers: Mapping[str, ServerConfig], world: TeamWorld
) -> None:
    used = {member.server for name in ("research", "coding") for member in spec(name).members} - {None}

    assert used == set(servers)
    assert all(world.has(f"{name}.{tool}") for name, config in servers.items() for tool in config.options.tools)


def test_calls_of_the_coding_team_that_change_files_need_approval(world: TeamWorld) -> None:
    star = compile_team(spec("coding"), world, creator=None, activator=None)

    changing = {
        member.name: member.approval
        for member in star.members
        for server, _, tool in (name.partition(".") for name in member.tools)
        if world.servers[server][tool] is not Effect.READ
    }
    assert changing == {"programmer": "effects"}


def test_published_schema_is_that_of_the_format() -> None:
    published = json.loads((FOLDER / "team.schema.json").read_text("utf-8"))

    assert published == team_schema()


@pytest.mark.parametrize("name", ["research", "coding"])
def test_published_schema_takes_the_example_and_refuses_an_unknown_field(name: str) -> None:
    validator = jsonschema.Draft202012Validator(team_schema())
    document = spec(name).model_dump(mode="json")

    assert validator.is_valid(document)
    assert not validator.is_valid({**document, "code": "import os"})


def test_limits_of_the_example_that_the_platform_overrides_are_notes_and_no_faults(world: TeamWorld) -> None:
    limited = replace(world, limits=StarLimits(seconds=300, iterations=6, tokens=200_000))

    notes = {note.path: str(note) for note in checked(spec("coding"), limited, NOTES)}

    assert checked(spec("coding"), limited) == []
    assert set(notes) == {"limits.seconds", "limits.iterations", "limits.tokens"}
    assert "600" in notes["limits.seconds"]
    assert "300" in notes["limits.seconds"]
