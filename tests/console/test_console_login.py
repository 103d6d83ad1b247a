"""Beginning and ending a session in the page."""

import pytest
from playwright.async_api import Page, expect

from starling.core.principal import Scope
from tests.console.conftest import Console, loaded

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def kept(page: Page) -> str:
    """Return the one token that the page keeps."""
    (token,) = await page.evaluate("Object.values(localStorage)")
    return token


async def assert_logs_out(console: Console, page: Page) -> None:
    """Log out, and check that the token of the page is worth nothing any more."""
    token = await kept(page)
    headers = {"Authorization": f"Bearer {token}"}
    await console.platform.get("/v1/console/session", headers=headers)

    async with page.expect_navigation():
        await page.get_by_role("button", name="Log out").click()

    await loaded(page)
    assert await page.evaluate("localStorage.length") == 0
    await console.platform.get("/v1/console/session", 401, headers=headers)


async def test_log_out_ends_the_session_at_once(console: Console) -> None:
    console.refused = "401"
    page = await console.entered(Scope.RUN)

    await assert_logs_out(console, page)


async def test_pasted_key_gives_a_session_that_ends_without_the_key(console: Console) -> None:
    console.refused = "401"
    key, page = await console.platform.key(Scope.RUN), await console.open_page()
    await page.goto(console.address("#code=used"))
    await page.get_by_role("heading", name="Log in").wait_for()

    await page.get_by_role("textbox").fill("sk-starling-wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("not a Starling key")
    await page.get_by_role("textbox").fill(f"  {key} ")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Inbox").wait_for()

    assert await kept(page) != key
    await assert_logs_out(console, page)
    await console.platform.get("/v1/console/session", headers={"Authorization": f"Bearer {key}"})
