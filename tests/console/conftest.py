"""A browser in front of a real platform with a scripted model; without Chromium these tests are left out."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

import starling
from starling.core.principal import Scope
from tests.support.browser import INSTALL, chromium, chromium_arguments
from tests.support.chat_platform import ChatPlatform, chat_platform
from tests.support.local_access import TOKEN

BUILT: Final = Path(starling.__file__).parent / "console" / "index.html"
_LOADED: Final = """() => new Promise((resolve) => {
    const look = () => document.querySelector("h1") && !document.querySelector(".late") && resolve();
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true });
    look();
})"""  # which `expect` would look for less and less often
AXE: Final = Path(".tools/console/node_modules/axe-core/axe.min.js")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = "" if chromium() else INSTALL
    if not BUILT.exists():
        missing = "the console is not built: run `make console`"
    for item in items if missing else ():
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"pages are not tried, {missing}"))


@dataclass
class Console:
    """Pages of a platform. `complaints` are errors of pages, and requests to any other address."""

    platform: ChatPlatform
    browser: Browser
    complaints: list[str] = field(default_factory=list[str])
    refused: str = "none"  # the status of refused requests, which the browser logs, that a test expects

    def address(self, path: str = "") -> str:
        return f"{self.platform.url}/console/{path}"

    async def link(self, bearer: str = TOKEN) -> str:
        """Return a link as `starling console` prints it."""
        headers = {"Authorization": f"Bearer {bearer}"}
        async with self.platform.client.post("/v1/console/codes", headers=headers) as response:
            assert response.status == 201, await response.text()
            return f"{self.address()}#code={(await response.json())['code']}"

    async def open_page(self, width: int = 1200, scheme: Literal["light", "dark"] = "light") -> Page:
        """Return a page that nobody has logged in with."""
        context = await self.browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = await context.new_page()
        page.set_default_timeout(20_000)
        expect.set_options(timeout=20_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: self._check(asked.url))
        return page

    def _check(self, url: str) -> None:
        if not url.startswith((self.platform.url, "data:")):
            self.complaints.append(f"a request to {url}")

    async def entered(self, *scopes: Scope, width: int = 1200, scheme: Literal["light", "dark"] = "light") -> Page:
        """Return a page that is logged in with a new key of these scopes, without any as the machine's admin."""
        bearer = await self.platform.key(*scopes) if scopes else TOKEN
        page = await self.open_page(width=width, scheme=scheme)
        await page.goto(await self.link(bearer))
        await page.get_by_role("heading", name="Inbox").wait_for()
        return page


@asynccontextmanager
async def opened_browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=chromium_arguments())
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[ChatPlatform, Browser]]:
    folder = tmp_path_factory.mktemp("platform")
    async with chat_platform(module_database_url, folder) as platform, opened_browser() as browser:
        yield platform, browser


@pytest_asyncio.fixture(loop_scope="module")
async def console(opened: tuple[ChatPlatform, Browser]) -> AsyncGenerator[Console]:
    """Pages of a platform whose model has no script yet; at the end none may have complained."""
    platform, browser = opened
    platform.script.forget()
    opened_console = Console(platform, browser)
    yield opened_console
    for context in browser.contexts:
        await context.close()
    assert [one for one in opened_console.complaints if f"status of {opened_console.refused}" not in one] == []


async def loaded(page: Page) -> None:
    """Return once the page shows what it asked for."""
    async with asyncio.timeout(20):
        await page.evaluate(_LOADED)


async def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page for people who can't see or use a mouse."""
    found = await page.evaluate(f"{AXE.read_text('utf-8')}; axe.run().then((result) => result.violations)")
    return [f"{one['id']}: {json.dumps([node['target'] for node in one['nodes']])}" for one in found]
