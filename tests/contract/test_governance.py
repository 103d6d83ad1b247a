"""What every adapter decides on requests: never more than the table of the admin allows. The service is a real one."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from starling.core.errors import ConfigurationError
from starling.core.governance import (
    CELLS,
    Governance,
    GovernanceDecision,
    GovernanceRow,
    GovernanceRows,
    GovernanceTable,
    TableGovernance,
)
from starling.core.runs import Channel, Mode
from starling.core.settings.schema import Settings
from starling.infra.brainstem import ServiceGovernance, open_brainstem
from tests.support.brainstem_server import BrainstemServer
from tests.support.gateway_harness import free_port

TABLE = GovernanceTable(
    modes={Mode.MODERATE: GovernanceRow.model_validate({"tools": ["bench.*", "shop.look"], "seconds": 60})},
    channels={Channel.SYSTEM_HEALTH: GovernanceRow(max_tokens=500, approval="unsafe", iterations=2)},
    tenants={"acme": GovernanceRows(channels={Channel.CHAT: GovernanceRow.model_validate({"effects": ["read"]})})},
)
WIDE: Mapping[str, Any] = {
    "roles": ["router", "reasoning", "coding"],
    "tools": ["bench.*", "shop.*", "mail.*"],
    "effects": ["read", "idempotent", "unsafe"],
    "iterations": 50,
    "iteration_factor": 10,
    "max_tokens": 1_000_000,
    "temperature": 2,
    "seconds": 86_400,
    "approval": "never",
    "review": "never",
    "direct_agent": "architect",
}


def service_settings(url: str | None) -> Settings:
    return Settings(brainstem_url=url, brainstem_token=SecretStr("token-of-the-brainstem"))


@pytest.fixture
def server() -> BrainstemServer:
    return BrainstemServer()


@pytest.fixture(params=["table", "open service", "wide service", "silent address"])
async def governance(request: pytest.FixtureRequest, server: BrainstemServer) -> AsyncGenerator[Governance]:
    table = TableGovernance(TABLE, "acme")
    if request.param == "table":
        yield table
        return
    server.answer = WIDE if request.param == "wide service" else {}
    async with server.serving() as url:
        nowhere = f"http://127.0.0.1:{free_port()}"
        async with open_brainstem(service_settings(nowhere if request.param == "silent address" else url)) as service:
            assert service is not None
            yield ServiceGovernance(table, service)


@pytest.mark.parametrize(("mode", "channel"), CELLS)
async def test_decision_allows_no_more_than_the_row_of_the_tenant(
    governance: Governance, mode: Mode, channel: Channel
) -> None:
    whole = TABLE.row(mode, channel, "acme")

    decided = await governance.evaluate_request("session", channel, mode, "Hi.")

    assert whole.narrowed(decided.row) == decided.row
    assert decided.row.roles != ()


async def test_conservative_requests_may_only_read(governance: Governance) -> None:
    decided = await governance.evaluate_request("session", Channel.CHAT, Mode.CONSERVATIVE, "Hi.")

    assert decided.row.effects == ("read",)


async def test_decision_is_the_same_once_it_was_stored(governance: Governance) -> None:
    decided = await governance.evaluate_request("session", Channel.CODE_TASK, Mode.EXPLORATORY, "Hi.")

    assert GovernanceDecision.model_validate_json(decided.model_dump_json()) == decided


async def decided_with(server: BrainstemServer, mode: Mode = Mode.MODERATE) -> GovernanceDecision:
    async with server.serving() as url, open_brainstem(service_settings(url)) as service:
        assert service is not None
        governance = ServiceGovernance(TableGovernance(TABLE, "acme"), service)
        return await governance.evaluate_request("session", Channel.SYSTEM_HEALTH, mode, "How is the disk?")


async def test_narrower_answer_of_the_service_holds(server: BrainstemServer) -> None:
    server.answer = {"tools": ["bench.look", "mail.*"], "effects": ["read"], "seconds": 5, "approval": "always"}

    decided = await decided_with(server)

    assert decided.source == "service"
    assert decided.row.tools == ("bench.look",)
    assert (decided.row.effects, decided.row.seconds, decided.row.approval) == (("read",), 5, "always")


async def test_wider_answer_of_the_service_is_clamped_to_the_table(server: BrainstemServer) -> None:
    server.answer = WIDE

    decided = await decided_with(server)

    whole = TABLE.row(Mode.MODERATE, Channel.SYSTEM_HEALTH, "acme").members()
    assert {name: value for name, value in decided.row.members().items() if name in whole} == whole
    assert not {"review", "direct_agent"} & decided.row.members().keys()


WRONG: Mapping[str, tuple[Mapping[str, Any] | str, int]] = {
    "HTTP 500": ({}, 500),
    "its answer is invalid: Invalid JSON": ("no JSON", 200),
    "its answer is invalid: budget: there is no such field": ({"budget": 1}, 200),
    "its answer is invalid: seconds": ({"seconds": -1}, 200),
    "its answer is invalid: roles.0": ({"roles": ["poet"]}, 200),
    "longer than 65,536 bytes": ("{}" + " " * 70_000, 200),
    "HTTP 302": ({}, 302),
}


@pytest.mark.parametrize("reason", WRONG)
async def test_without_a_valid_answer_the_row_of_conservative_holds(reason: str) -> None:
    answer, status = WRONG[reason]

    decided = await decided_with(BrainstemServer(answer, status))

    cautious = TABLE.row(Mode.CONSERVATIVE, Channel.SYSTEM_HEALTH, "acme")
    assert decided.source == "fallback"
    assert reason in decided.warning
    assert cautious.narrowed(decided.row) == decided.row


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (403, "{}"),
        (204, ""),
        (200, "<html>signed in</html>"),
        (200, "[]"),
        (200, "null"),
        (200, '"read"'),
        (200, '{"effects": "read"}'),
        (200, '{"effects": ["read", "everything"]}'),
        (200, '{"effect": ["read"]}'),
        (200, '{"seconds": -5}'),
        (200, '{"seconds": 1e999}'),
        (200, '{"temperature": NaN}'),
        (200, '{"tenants": {"acme": {}}}'),
        (200, '{"effects": ["read"], "effects": ["unsafe"]}'),
        (200, "[" * 100_000),
        (200, '{"tools": [' + '"effects.put",' * 600_000 + '"effects.put"]}'),
    ],
)
async def test_answer_that_is_not_valid_decides_nothing(status: int, answer: str) -> None:
    decided = await decided_with(BrainstemServer(answer, status))

    assert (decided.source, bool(decided.warning)) == ("fallback", True)


async def test_address_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="BRAINSTEM_URL is not an http"):
        async with open_brainstem(service_settings("nowhere at all")):
            pass


async def test_service_that_never_answers_is_waited_for_three_seconds(server: BrainstemServer) -> None:
    server.silent = True

    decided = await decided_with(server)

    assert "did not answer within 3 s" in decided.warning
