"""A start opens the sessions of the servers that were called last, and of no others."""

from starling.app.container.loader import warm_recent_servers
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.call_claims import CalledServer, RecentCalls
from tests.integration.brain.conftest import Open
from tests.support.absent_services import NO_HALTS
from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel, Workbench, calls, decision, task

ADMIN = Actor.local("test")


async def call_bench(platform: Platform, script: ScriptedModel) -> None:
    script.run(decision(task("t1", "bench")), t1=[calls(("look", {"thing": "disk"})), Answer("Looked.")])
    await platform.ask("How is the disk?")


async def opened_by_start(platform: Platform) -> int:
    """Return how many sessions are open or opening once the start is finished."""
    runtime = platform.worker_runtime
    await warm_recent_servers(RecentCalls(platform.services.storage.engine), runtime.gateway, runtime.halts)
    return runtime.gateway.open_sessions


async def test_start_opens_a_session_of_the_server_that_was_called_before(opened: Open, script: ScriptedModel) -> None:
    async with opened() as platform:
        unused = await opened_by_start(platform)
        await call_bench(platform, script)

    async with opened() as platform:
        called = await RecentCalls(platform.services.storage.engine).servers()
        used = await opened_by_start(platform)

    assert called == [CalledServer("default", "bench")]
    assert (unused, used) == (0, 1)


async def test_start_opens_no_session_of_a_server_that_is_switched_off_for_its_caller(
    opened: Open, script: ScriptedModel
) -> None:
    async with opened() as platform:
        await call_bench(platform, script)
        await platform.services.storage.switches.off(Target("server", "bench"), "It lies.", ADMIN)

    async with opened() as platform:
        assert await opened_by_start(platform) == 0


async def test_start_opens_at_most_four_sessions_and_none_of_removed_servers(
    opened: Open, workbench: Workbench
) -> None:
    class Called(RecentCalls):
        async def servers(self) -> list[CalledServer]:
            return [CalledServer("default", name) for name in ("gone", "s1", "s1", "s2", "s3", "s4", "s5")]

    async with opened(servers={f"s{number}": workbench.as_server("read") for number in range(1, 6)}) as platform:
        gateway = platform.worker_runtime.gateway
        await warm_recent_servers(Called(platform.services.storage.engine), gateway, NO_HALTS)

        assert gateway.open_sessions == 4
