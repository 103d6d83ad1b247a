"""A browser over its own protocol: Playwright has every page believe that it is seen, so it hides none."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.browser import chromium, chromium_arguments


@dataclass(frozen=True, slots=True)
class Devtools:
    """The connection to a browser."""

    socket: aiohttp.ClientWebSocketResponse
    numbers: "count[int]"

    @classmethod
    @asynccontextmanager
    async def running(cls, profile: Path) -> AsyncGenerator["Devtools"]:
        """Run a browser with a new profile in a folder until the block ends."""
        program = chromium()
        assert program
        options = ("--headless", "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={profile}")
        browser = await asyncio.create_subprocess_exec(
            program, *chromium_arguments(), *options, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        assert browser.stderr
        try:
            said = await asyncio.wait_for(browser.stderr.readuntil(b"/devtools/browser/"), 60)
            said += await browser.stderr.readline()
            url = re.search(r"ws://\S+", said.decode())
            assert url, said
            async with aiohttp.ClientSession() as client, client.ws_connect(url[0]) as socket:
                yield cls(socket, count(1))
        finally:
            browser.kill()
            await browser.communicate()

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        sent: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self.socket.send_json(sent | ({"sessionId": session} if session else {}))
        while (answer := await self.socket.receive_json()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    async def open_tab(self, url: str = "about:blank") -> "Tab":
        """Open a tab in front of the others."""
        target = (await self.call("Target.createTarget", url=url))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        return Tab(self, target, session)


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of a browser."""

    browser: Devtools
    target: str
    session: str

    async def show(self) -> None:
        """Bring the tab to the front, and so hide the others of its window."""
        await self.browser.call("Target.activateTarget", targetId=self.target)

    async def set_window(self, state: str) -> None:
        window = (await self.browser.call("Browser.getWindowForTarget", targetId=self.target))["windowId"]
        await self.browser.call("Browser.setWindowBounds", windowId=window, bounds={"windowState": state})

    async def go(self, url: str) -> None:
        await self.browser.call("Page.navigate", self.session, url=url)

    async def evaluate(self, expression: str) -> Any:
        found = await self.browser.call("Runtime.evaluate", self.session, expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Return once an expression is true."""
        async with asyncio.timeout(20):
            while not await self.evaluate(expression):  # noqa: ASYNC110 - of a browser
                await asyncio.sleep(0.05)
