"""A plan of a server whose address came with the request sends no variable there."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from aiohttp import ClientSession

from tests.support.command_line import CliWorkspace, Service, new_workspace, server_file
from tests.support.header_recorder import HeaderRecorder

_VARIABLES: Final = {"EVIL_TOKEN": "token-of-nobody", "SHOP_TOKEN": "token-of-the-shop"}
_AUTHORIZATION: Final = {"Authorization": "Bearer ${SHOP_TOKEN}"}


@dataclass(frozen=True)
class Planned:
    """A platform whose file has the server `shop`, with a token, and an admin on another machine who sends plans."""

    workspace: CliWorkspace
    service: Service
    shop: HeaderRecorder
    evil: HeaderRecorder
    key: str

    @property
    def own(self) -> dict[str, Any]:
        return {"shop": {"url": f"{self.shop.url}/mcp", "headers": _AUTHORIZATION}}

    async def plan(self, servers: Mapping[str, Any], **query: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of the answer to a plan."""
        headers = {"Authorization": f"Bearer {self.key}"}
        async with (
            ClientSession(self.service.url, headers=headers) as client,
            client.post("/v1/registry/plan", json={"mcpServers": {**self.own, **servers}}, params=query) as response,
        ):
            return response.status, await response.json()

    def sent(self) -> list[str]:
        """Return which variables of the platform's process were sent to the new address."""
        received = "".join(self.evil.received)
        known = self.workspace.environment
        return [
            name for name in ("EVIL_TOKEN", "SHOP_TOKEN", "PATH", "HOME", "DATABASE_URL") if known[name] in received
        ]


@pytest.fixture(scope="module")
def planned(module_database_url: str) -> Generator[Planned]:
    with (
        HeaderRecorder().serving() as shop,
        HeaderRecorder().serving() as evil,
        new_workspace(
            DATABASE_URL=module_database_url, STARLING_ALLOWED_ADDRESSES="127.0.0.1", **_VARIABLES
        ) as workspace,
    ):
        file = server_file(workspace, shop={"url": f"{shop.url}/mcp", "headers": _AUTHORIZATION})
        with workspace.running("up", "--port", "0", "--mcp-config", file) as service:
            key = workspace.json("key", "create", "admin", "--scope", "admin")["key"]
            yield Planned(workspace, service, shop, evil, key)


def in_headers(name: str) -> dict[str, Any]:
    return {"headers": {"X-Sent": f"a ${{{name}}}"}}


def with_default(name: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer ${{{name}:-none}}"}}


@pytest.mark.parametrize("name", ["EVIL_TOKEN", "SHOP_TOKEN", "PATH", "HOME", "DATABASE_URL"])
@pytest.mark.parametrize("configured", [in_headers, with_default])
async def test_plan_sends_no_variable_to_an_address_of_the_request_and_says_so(
    planned: Planned, name: str, configured: Any
) -> None:
    planned.evil.received.clear()

    status, answer = await planned.plan({"evil": {"url": f"{planned.evil.url}/mcp", **configured(name)}})

    assert planned.sent() == []
    assert planned.workspace.environment[name] not in str(answer)
    told = answer["warnings"]["evil"] if status == 200 else answer["detail"]
    assert name in told


@pytest.mark.parametrize("name", ["EVIL_TOKEN", "SHOP_TOKEN"])
@pytest.mark.parametrize("place", ["/mcp?a={}", "/{}/mcp"])
async def test_plan_sends_no_variable_in_an_address_of_the_request(planned: Planned, name: str, place: str) -> None:
    planned.evil.received.clear()

    await planned.plan({"evil": {"url": planned.evil.url + place.format(f"${{{name}}}")}})

    assert planned.sent() == []


async def test_plan_sends_a_server_s_own_variable_to_no_other_address(planned: Planned) -> None:
    planned.evil.received.clear()

    await planned.plan({"shop": planned.own["shop"] | {"url": f"{planned.evil.url}/mcp"}})

    assert planned.sent() == []


async def test_plan_sends_a_server_s_own_variable_to_its_stored_address(planned: Planned) -> None:
    planned.shop.received.clear()

    status, _ = await planned.plan({}, relist="true")

    assert status == 200
    assert _VARIABLES["SHOP_TOKEN"] in "".join(planned.shop.received)
