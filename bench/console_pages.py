"""The console in a browser: what a first visit loads, how soon it shows something, and the page of a busy run."""

import asyncio
import gzip
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from time import time
from types import SimpleNamespace
from typing import Any

from aiohttp import StreamReader
from playwright.async_api import Browser, async_playwright

import starling
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Place, Platform, admin_session, up
from starling.core.events.run_events import Plan, PlannedTask, TaskStart, Thinking, ToolResult, ToolStart
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from tests.support.browser import chromium, chromium_arguments
from tests.support.written_run import WrittenRun, written_run

NAMES = ("console.bytes_kb", "console.first_paint_ms", "console.text_lag_ms", "console.call_lag_ms")
_FILES = Path(starling.__file__).parent / "console"
_SENT = (".html", ".js", ".css", ".svg")  # not the licences
_PAINT = """new Promise((resolve) => new PerformanceObserver((list) => {
    for (const one of list.getEntriesByName("first-contentful-paint")) resolve(one.startTime);
}).observe({ type: "paint", buffered: true }))"""
_STEPS, _STEP_SECONDS = 500, 0.02  # of four events each: a call, its result, and two pieces of text
_WATCH = """() => {
    window.seen = [[], []];
    const places = [["main [aria-live]", /(\\d+) $/], ["td summary", /(\\d+)\\D*$/]];
    const look = () => places.forEach(([place, number], kind) => {
        const found = number.exec(document.querySelector(place)?.textContent ?? "")?.[1] ?? 0;
        requestAnimationFrame(() => { while (seen[kind].length < found) seen[kind].push(Date.now() / 1000); });
    });
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
_SEEN = """(count) => new Promise((resolve) => {
    const look = () => seen.every((one) => one.length >= count) ? resolve(seen) : requestAnimationFrame(look);
    look();
})"""


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the built files, compressed, the first paint of seven first visits, and a page at 200 events a second."""
    setup.say("The console")
    files = [file.read_bytes() for file in _FILES.rglob("*") if file.suffix in _SENT]
    packed, plain = sum(len(gzip.compress(file)) for file in files) / 1e3, sum(map(len, files)) / 1e3
    place = setup.place("console")
    async with up(place) as (platform, _), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=chromium_arguments())
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(7):
            ours.append(await _first_paint(browser, f"{platform.url}/console/"))
            bare.append(await _first_paint(browser, f"{platform.url}/"))
        text, calls, read = await _lags(platform, place, browser)
        await browser.close()
    against = f"a reader of the same stream gets its text, {4 / _STEP_SECONDS:g} events a second"
    return [
        Figure("console.bytes_kb", packed, "kB", plain, "not compressed"),
        Figure("console.first_paint_ms", median(ours), "ms", median(bare), "the page at /, a kilobyte of HTML"),
        Figure("console.text_lag_ms", text, "ms", read, against),
        Figure("console.call_lag_ms", calls, "ms", read, against),
    ]


async def _first_paint(browser: Browser, url: str) -> float:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    await page.get_by_role("heading").first.wait_for()
    painted = await page.evaluate(_PAINT)
    await context.close()
    return painted


async def _lags(platform: Platform, place: Place, browser: Browser) -> list[float]:
    """Return p95 of the milliseconds until a page shows text and calls, and until a reader of the stream has the text.

    They count from when the events are handed to Postgres, by another process than the one that serves them.
    """
    engine = open_engine(platform.database)
    notices = NoticeSender(engine)
    services: Any = SimpleNamespace(storage=SimpleNamespace(engine=engine, broadcast=Broadcast(notices=notices)))
    async with admin_session(platform, place) as session, written_run(services, thread="console") as run:
        await _plan(run)
        async with session.post("/v1/console/codes") as response:
            code = (await response.json())["code"]
        page = await browser.new_page()
        await page.goto(f"{platform.url}/console/#code={code}")
        await page.get_by_role("heading", name="Inbox").wait_for()
        await page.goto(f"{platform.url}/console/runs/{run.id}")
        await page.get_by_text("Attempt 1").wait_for()
        await page.evaluate(_WATCH)
        async with session.get(f"/v1/runs/{run.id}/events") as stream, asyncio.TaskGroup() as group:
            read = group.create_task(_texts(stream.content))
            written = await _write(run)
        async with asyncio.timeout(60):
            shown: Sequence[Sequence[float]] = await page.evaluate(_SEEN, _STEPS)
    await notices.close()
    await engine.dispose()
    pairs = [zip(written, times, strict=True) for times in (*shown, read.result())]
    return [1_000 * quantiles([late - early for early, late in pair], n=20)[-1] for pair in pairs]


async def _plan(run: WrittenRun) -> None:
    tasks = [PlannedTask(id="t1", agent="looker", task="Look.", depends_on=[], status="running")]
    run.writer.emit(Plan(version=1, plan=[], tasks=tasks, thought_process=""))
    run.writer.emit(TaskStart(task_id="t1", path="t1", agent="looker", attempt=1))
    await run.writer.flush()


async def _write(run: WrittenRun) -> list[float]:
    """Write each step at its time; return when."""
    written, begun = list[float](), time()
    for step in range(1, _STEPS + 1):
        await asyncio.sleep(begun + step * _STEP_SECONDS - time())
        call = f"t1.0.{step}"
        run.writer.emit(ToolStart(task_id="t1", path="t1", name="bench.look", call_id=call, args={"thing": step}))
        run.writer.emit(ToolResult(name="bench.look", call_id=call, result="fine", status="succeeded"))
        run.writer.emit(Thinking(content="piece ", message_id="m"))
        written.append(time())
        await run.say(f"{step} ")
    return written


async def _texts(stream: StreamReader) -> list[float]:
    """Return when the last piece of text of each step came."""
    came = list[float]()
    while len(came) < _STEPS:
        if f'"content":"{len(came) + 1} "'.encode() in await stream.readline():
            came.append(time())
    return came
