"""`offline:rules` on the use of a folder, which no tool tells, and on searches that find nothing."""

import sys
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.gateway_harness import SERVERS as SCRIPTS

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHELF = {"command": sys.executable, "args": [str(SCRIPTS / "shelf.py")], "x-starling": {"effect": "read"}}
DISK = ["system_health.disk"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    servers = {"system_health": SERVERS["system_health"], "shelf": SHELF}
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), servers) as api:
        yield api


@pytest.mark.parametrize(
    ("wanted", "called"),
    [
        ("How much disk does /tmp use?", []),
        ("How much disk space does /tmp use?", []),
        ("How much disk does the folder /tmp use?", []),
        ("How full is the disk?", DISK),
        ("How full is the disk of /home?", DISK),
        ("How much disk space is free?", DISK),
        *(
            (f'Search the {kind} for "dragons".', [f"shelf.search_{kind}"])
            for kind in ("books", "maps", "films", "songs")
        ),
    ],
)
async def test_request_is_answered_and_kept_as_a_skill_only_where_a_tool_tells(
    api: LiveApi, wanted: str, called: list[str]
) -> None:
    events = await api.ask(wanted)

    reply = events[-1].data["reply"]
    kept = [skill for skill in (await api.get("/v1/skills"))["skills"] if "/tmp" in str(skill)]
    assert [event.data["name"] for event in events if event.type == "tool_start"] == called, reply
    assert events[-1].data["status"] == ("succeeded" if called else "failed"), reply
    assert (("Not answered" in reply) == (not called), kept) == (True, [])
