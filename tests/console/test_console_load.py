"""Pages with much to show, and pages that nobody sees."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from starling.core.events.run_events import Plan, PlannedTask, TaskStart, ToolResult, ToolStart
from starling.core.principal import Scope
from tests.console.conftest import Console, loaded
from tests.console.test_console_promises import assert_answers_a_click, until_streams
from tests.support.devtools import Devtools
from tests.support.gateway_harness import free_port
from tests.support.stored_runs import events_of, stored_run
from tests.support.written_run import written_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.console]

TASKS, EVENTS, SERVERS = 100, 2_000, 300
_LONGEST: Final = 500  # milliseconds of a task of the page's main thread, on a machine that is busy
_MEASURE: Final = """
    window.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
        window.longest = Math.max(window.longest, entry.duration);
    })).observe({ type: "longtask", buffered: true });
"""


async def longest(page: Page) -> float:
    """Return the longest task of the main thread since the page was loaded or this was asked, in milliseconds."""
    return await page.evaluate("() => { const found = window.longest; window.longest = 0; return found; }")


async def test_run_of_2000_events_and_100_tasks_blocks_the_page_for_no_noticeable_time(console: Console) -> None:
    events = events_of(TASKS)
    noise = [
        {"type": "warning", "code": "load", "message": f"Event {n}.", "path": "t1"} for n in range(EVENTS - len(events))
    ]
    key = await stored_run(console.platform.services.storage.engine, [*events, *noise])
    page = await console.entered(Scope.RUN)
    await page.add_init_script(_MEASURE)
    found = dict[str, float]()

    await page.goto(console.address(f"runs/{key.id}"))
    await loaded(page)
    await expect(page.get_by_role("region", name="Tasks of the plan").get_by_role("row")).to_have_count(TASKS + 1)
    found["shown"] = await longest(page)
    for summary in (await page.get_by_text(re.compile("^Attempt 1")).all())[:10]:
        await summary.click()
    found["opened"] = await longest(page)
    await page.mouse.wheel(0, 50_000)
    await page.mouse.wheel(0, -50_000)
    await assert_answers_a_click(page)
    found["left"] = await longest(page)

    assert max(found.values()) < _LONGEST, found


async def test_live_run_of_2000_events_and_100_tasks_stays_fluent(console: Console) -> None:
    async with written_run(console.platform.services, thread="load") as run:
        page = await console.entered(Scope.RUN)
        await page.add_init_script(_MEASURE)
        await page.goto(console.address(f"runs/{run.id}"))
        await loaded(page)
        await until_streams(console, 1)
        await longest(page)
        planned = [
            PlannedTask(id=f"t{n}", agent="looker", task=f"Look {n}", depends_on=[], status="pending")
            for n in range(TASKS)
        ]
        run.writer.emit(Plan(version=1, plan=[], tasks=planned, thought_process=""))
        for number in range(EVENTS // 4):
            at: dict[str, Any] = {"task_id": f"t{number % TASKS}", "path": f"t{number % TASKS}"}
            call = f"{at['path']}.0.{number}"
            run.writer.emit(TaskStart(**at, agent="looker", attempt=1 + number // TASKS))
            run.writer.emit(ToolStart(**at, name="bench.look", call_id=call, args={"thing": number}))
            run.writer.emit(ToolResult(name="bench.look", call_id=call, result="fine", status="succeeded"))
            await run.say(f"word{number} ")
        await expect(page.get_by_text(f"word{EVENTS // 4 - 1} ")).to_be_visible()
        found = await longest(page)
        await assert_answers_a_click(page)

    assert found < _LONGEST, found


async def test_300_servers_of_an_mcp_file_that_refuse_are_listed_and_one_is_found(console: Console) -> None:
    closed = f"http://127.0.0.1:{free_port()}/mcp"
    servers = {"effects": console.platform.effects.as_server(approval="unsafe")}
    servers |= {f"many{number}": {"type": "http", "url": closed} for number in range(SERVERS)}
    page = await console.entered()
    await console.platform.post("/v1/registry/reload", json={"mcpServers": servers})
    await page.add_init_script(_MEASURE)
    await page.goto(console.address("registry"))
    await loaded(page)
    try:
        await expect(page.get_by_role("link", name="many299", exact=True)).to_be_visible()
        shown = await longest(page)
        await page.get_by_label("Part of a name").first.fill("many29")
        await expect(page.get_by_role("link", name=re.compile("^many"))).to_have_count(11)
        filtered = await longest(page)
        await page.get_by_role("link", name="many299", exact=True).click()
        await page.get_by_role("heading", level=1, name="many299").wait_for()
        await loaded(page)
        await assert_answers_a_click(page)
        assert max(shown, filtered) < _LONGEST
    finally:
        await console.platform.post("/v1/registry/reload", json={"mcpServers": {"effects": servers["effects"]}})


async def test_page_in_a_tab_or_window_that_nobody_sees_holds_no_stream_and_goes_on_when_it_is_shown(
    console: Console, tmp_path: Path
) -> None:
    seen = "document.body.innerText.includes('{}')"
    async with written_run(console.platform.services, thread="hidden") as run, Devtools.running(tmp_path) as browser:
        page = await browser.open_tab(await console.link())
        await page.until(seen.format("Nothing waits for you."))
        await page.go(console.address(f"runs/{run.id}"))
        await page.until(seen.format(run.id[-8:]))
        await run.say("Begun. ")
        await page.until(seen.format("Begun."))
        await until_streams(console, 1)

        other = await browser.open_tab()
        await page.until("document.visibilityState === 'hidden'")
        await until_streams(console, 0)
        await run.say("Behind a tab. ")
        await page.show()
        await page.until(seen.format("Behind a tab."))
        await until_streams(console, 1)

        await page.set_window("minimized")
        await page.until("document.visibilityState === 'hidden'")
        await until_streams(console, 0)
        await run.say("In a small window.")
        await page.set_window("normal")
        await page.until(seen.format("Begun. Behind a tab. In a small window."))
        await until_streams(console, 1)

        await other.show()
        await until_streams(console, 0)
        await run.end("It has ended.")
        await page.show()
        await page.until(seen.format("It has ended."))
        await until_streams(console, 0)
