"""Tools and servers that are added after a team was compiled: they become part of it by a new activation only."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.conftest import LiveApi, running_api
from tests.support.gateway_harness import SERVERS
from tests.support.sse import Event, read_events

GOAL = "A team that shows the books, and shows the records"


def library(*things: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "library.py"), *things], "x-starling": {"effect": "read"}}


def spec(name: str) -> dict[str, Any]:
    """Return a team whose one member works with all tools of the library."""
    member = {"name": "reader", "role": "Reader", "goal": "Show what there is.", "server": "library"}
    return {"name": name, "purpose": "Shows what a library has.", "members": [member]}


async def build(api: LiveApi, path: str, **body: Any) -> list[Event]:
    run = (await api.post(path, json=body, status=202))["run_id"]
    async with api.client.get(f"/v1/runs/{run}/events") as response:
        return [event async for event in read_events(response)]


def called(events: list[Event]) -> list[str]:
    return [event.data["name"] for event in events if event.type == "tool_start"]


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncGenerator[LiveApi]:
    async with running_api(database_url, tmp_path, {"library": library("books", "maps")}) as api:
        yield api


async def test_team_of_a_whole_server_calls_a_tool_that_came_later_only_after_its_next_activation(api: LiveApi) -> None:
    await api.post("/v1/teams/readers/versions", json={"spec": spec("readers")}, status=201)
    first = await api.post("/v1/teams/readers/activate", json={})
    changed = await api.post("/v1/registry/reload", json={"mcpServers": {"library": library("books", "maps", "films")}})
    [pin] = (await api.get("/v1/servers/library"))["pins"]
    await api.post("/v1/servers/library/approve", json={"tools": {pin["tool"]: pin["offered_hash"]}})

    before = await api.ask("Use readers: show the films")
    known = await api.ask("Use readers: show the books")
    again = await api.post("/v1/teams/readers/activate", json={})
    after = await api.ask("Use readers: show the films")

    assert changed["quarantined"] == {"library": {"show_films": "It appeared after its server was approved."}}
    assert first["tools"] == ["library.show_books", "library.show_maps"]
    assert (called(before), before[-1].data["status"]) == ([], "failed")
    assert (called(known), known[-1].data["status"]) == (["library.show_books"], "succeeded")
    assert again["tools"] == ["library.show_books", "library.show_films", "library.show_maps"]
    assert (called(after), after[-1].data["status"]) == (["library.show_films"], "succeeded")


async def test_server_that_came_later_becomes_part_of_the_next_build_and_not_of_the_team(api: LiveApi) -> None:
    first = await build(api, "/v1/teams", goal=GOAL, name="readers", partial=True, activate=False)
    await api.post("/v1/teams/readers/activate", json={})
    servers = {"library": library("books", "maps"), "archive": library("records")}
    await api.post("/v1/registry/reload", json={"mcpServers": servers})

    before = await api.ask("Use readers: show the records")
    second = await build(api, "/v1/teams/readers/versions", goal="Also show the records of the archive", activate=False)
    await api.post("/v1/teams/readers/activate", json={})
    after = await api.ask("Use readers: show the records")

    gaps = [event.data["missing"] for event in first if event.type == "design"]
    assert [[one["part"] for one in missing] for missing in gaps] == [["shows the records"]]
    assert (called(before), before[-1].data["status"]) == ([], "failed")
    assert [event.data["state"] for event in second if event.type == "published"] == ["unproven"], second[-1].data
    assert (called(after), after[-1].data["status"]) == (["archive.show_records"], "succeeded")
