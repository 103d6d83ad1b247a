"""The console in a browser: what a first visit loads, how soon it shows something, and a page of a busy run."""

import gzip
from pathlib import Path
from statistics import median

from playwright.async_api import Browser, async_playwright

import starling
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import up
from tests.support.browser import chromium, chromium_arguments

NAMES = ("console.bytes_kb", "console.first_paint_ms")
_FILES = Path(starling.__file__).parent / "console"
_SENT = (".html", ".js", ".css", ".svg")  # not the licences
_PAINT = """new Promise((resolve) => new PerformanceObserver((list) => {
    for (const one of list.getEntriesByName("first-contentful-paint")) resolve(one.startTime);
}).observe({ type: "paint", buffered: true }))"""


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the built files, compressed, and the median first paint of seven first visits."""
    setup.say("The console")
    files = [file.read_bytes() for file in _FILES.rglob("*") if file.suffix in _SENT]
    packed, plain = sum(len(gzip.compress(file)) for file in files) / 1e3, sum(map(len, files)) / 1e3
    async with up(setup.place("console")) as (platform, _), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=chromium_arguments())
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(7):
            ours.append(await _first_paint(browser, f"{platform.url}/console/"))
            bare.append(await _first_paint(browser, f"{platform.url}/"))
        await browser.close()
    return [
        Figure("console.bytes_kb", packed, "kB", plain, "not compressed"),
        Figure("console.first_paint_ms", median(ours), "ms", median(bare), "the page at /, a kilobyte of HTML"),
    ]


async def _first_paint(browser: Browser, url: str) -> float:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    await page.get_by_role("heading").first.wait_for()
    painted = await page.evaluate(_PAINT)
    await context.close()
    return painted
