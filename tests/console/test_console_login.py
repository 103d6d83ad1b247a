"""Beginning and ending a session in the page, where its token is, and what every answer carries."""

from typing import Final

import pytest
from playwright.async_api import Page, expect

from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from tests.console.conftest import BUILT, Console, loaded

pytestmark = pytest.mark.asyncio(loop_scope="module")

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def kept(page: Page) -> str:
    """Return the one token that the page keeps."""
    (token,) = await page.evaluate("Object.values(localStorage)")
    return token


async def test_pasted_key_gives_a_session_that_log_out_ends_at_once_and_not_the_key(console: Console) -> None:
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

    token = await kept(page)
    assert token != key
    await console.platform.get("/v1/console/session", headers={"Authorization": f"Bearer {token}"})
    async with page.expect_navigation():
        await page.get_by_role("button", name="Log out").click()

    await loaded(page)
    assert await page.evaluate("localStorage.length") == 0
    await console.platform.get("/v1/console/session", 401, headers={"Authorization": f"Bearer {token}"})
    await console.platform.get("/v1/console/session", headers={"Authorization": f"Bearer {key}"})


async def test_link_is_valid_once_and_leaves_no_code_in_the_address(console: Console) -> None:
    link = await console.link()
    first, second = await console.open_page(), await console.open_page()

    await first.goto(link)
    await expect(first.get_by_role("heading", name="Inbox")).to_be_visible()
    await second.goto(link)

    await expect(second.get_by_role("alert")).to_contain_text("used already")
    assert "code" not in first.url + second.url
    console.refused = "401"


async def test_key_that_is_revoked_ends_its_session_in_the_open_page(console: Console) -> None:
    page, keys = await console.entered(Scope.RUN), console.platform.services.storage.keys
    *_, key = await keys.every(HOST_ADMIN)

    await keys.revoke(HOST_ADMIN, key.id, Actor.local("test"))
    await page.get_by_role("link", name="Runs").click()
    await page.reload()

    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text("revoked")
    console.refused = "401"


async def test_token_is_in_no_cookie_and_no_address_and_only_in_local_storage(console: Console) -> None:
    page, seen = await console.open_page(), list[str]()
    page.on("request", lambda one: seen.append(one.url))
    await page.goto(await console.link(await console.platform.key(Scope.RUN)))
    await page.get_by_role("heading", name="Inbox").wait_for()
    token = await kept(page)
    for path in ("runs", "registry", "access"):
        await page.goto(console.address(path))
        await loaded(page)

    assert len(token) > 20
    assert await kept(page) == token
    assert await page.evaluate("document.cookie + JSON.stringify({...sessionStorage})") == "{}"
    assert await page.context.cookies() == []
    assert [url for url in seen if token in url] == []
    assert token not in await page.content()


async def test_every_file_and_page_has_the_policy_and_sets_no_cookie(console: Console) -> None:
    built = [str(file.relative_to(BUILT.parent)) for file in BUILT.parent.rglob("*") if file.is_file()]
    paths = [*built, "", "runs", "runs/x", "nowhere", "assets/missing.js", "..%2f..%2fpyproject.toml"]
    for path in paths:
        async with console.platform.client.get(f"/console/{path}") as response:
            assert response.headers["Content-Security-Policy"] == CSP, path
            assert response.headers["X-Content-Type-Options"] == "nosniff", path
            assert "Set-Cookie" not in response.headers, path
            assert "[project]" not in await response.text(errors="replace"), path
