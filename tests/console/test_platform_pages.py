"""Pages of what the platform has: servers, teams and skills; all pages for people who can't see or use a mouse."""

import json
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.async_api import expect

from starling.core.principal import Scope
from tests.console.conftest import Console, loaded, violations
from tests.support.effect_recorder import AGENT
from tests.support.gateway_harness import SERVERS, python
from tests.support.platform import decision

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = ("", "ask", "runs", "threads", "registry", "servers/effects", "teams", "skills", "access", "nowhere")


SKILL = {
    "format": "starling.skill",
    "version": 1,
    "task": "Read the letter.",
    "template": "Read the letter.",
    "calls": [{"tool": "effects.read_it", "arguments": {"what": "a"}}],
    "outcome": "It is read.",
    "tools": {"effects.read_it": "hash"},
    "agent_kind": "specialist",
    "agent": AGENT,
}
LINES = {"content-type": "application/jsonl"}


async def test_reload_shows_its_plan_as_a_diff_and_the_epoch_after_it(console: Console) -> None:
    server = console.platform.effects.as_server(approval="unsafe")
    page = await console.entered()
    await page.goto(console.address("registry"))

    await page.get_by_label("An mcpServers document").fill(
        json.dumps({"mcpServers": {"effects": server, "more": server}})
    )
    await page.get_by_role("button", name="Show what would change").click()
    await expect(page.locator("pre .added").first).to_contain_text("server more")
    await expect(page.get_by_role("status")).to_have_text("A reload would change this:")
    await page.get_by_role("button", name="Reload").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reload").click()

    await expect(page.get_by_role("status")).to_have_text("Reloaded; new runs use epoch 2:")
    await expect(page.get_by_role("link", name="more")).to_be_visible()


async def test_definition_that_changed_is_shown_as_a_diff_and_approved(console: Console, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("Does it.")
    changing = python(SERVERS / "misbehaving.py", "changing", str(words)).document
    page = await console.entered()
    await page.goto(console.address("registry"))
    servers = {"effects": console.platform.effects.as_server(approval="unsafe"), "changing": changing}
    await page.get_by_label("An mcpServers document").fill(json.dumps({"mcpServers": servers}))
    await page.get_by_role("button", name="Reload").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reload").click()
    await expect(page.get_by_role("link", name="changing").first).to_be_visible()

    words.write_text("Does it, says the new version.")
    await page.get_by_label("List the tools of unchanged servers").check()
    await page.get_by_role("button", name="Reload").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reload").click()
    await expect(page.get_by_text("quarantined").first).to_be_visible()
    await page.goto(console.address("servers/changing"))
    await expect(page.locator("pre .added").last).to_contain_text("says the new version")
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_role("dialog").get_by_role("button", name="Approve").click()

    await expect(page.locator(".card.failed")).to_have_count(0)
    await expect(page.get_by_role("cell", name="Does it, says the new version.")).to_be_visible()


async def test_team_is_activated_and_gets_a_request(console: Console) -> None:
    member = {"name": "reader", "role": "Reader", "goal": "Reads.", "server": "effects", "tools": ["effects.read_it"]}
    spec = {"name": "readers", "purpose": "Reads letters.", "members": [member]}
    async with console.platform.client.post("/v1/teams/readers/versions", json={"spec": spec}) as response:
        assert response.status == 201, await response.text()
    console.platform.script.run(decision(reply="Nobody was asked."))
    page = await console.entered()
    await page.goto(console.address("teams/readers"))
    await expect(page.get_by_role("img", name="Graph")).to_be_visible()

    await page.get_by_role("button", name="Activate 1").click()
    await page.get_by_role("dialog").get_by_role("button", name="Activate 1").click()
    await expect(page.get_by_text("active", exact=True).first).to_be_visible()
    await page.get_by_role("main").get_by_role("link", name="Ask").click()
    await page.get_by_label("Request").fill("Read a.")
    await page.get_by_role("button", name="Ask").click()

    await page.wait_for_url("**/console/runs/*")
    await expect(page.get_by_role("img", name="The supervisor, and around it")).to_contain_text("readers")


async def test_skill_is_retired_with_a_reason(console: Console) -> None:
    line = json.dumps(SKILL)
    async with console.platform.client.post("/v1/skills/import", data=line, headers=LINES) as response:
        assert response.status == 200, await response.text()
    page = await console.entered()
    await page.goto(console.address("skills"))

    await page.get_by_role("button", name="Read the letter.").click()
    await page.get_by_role("button", name="Retire").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("It is read by hand.")
    await page.get_by_role("dialog").get_by_role("button", name="Retire").click()

    await expect(page.get_by_role("cell", name="It is read by hand.")).to_be_visible()


async def test_key_without_a_scope_sees_no_button_for_what_it_may_not_do(console: Console) -> None:
    page = await console.entered(Scope.RUN)

    await page.goto(console.address("registry"))
    await expect(page.get_by_role("heading", name="Registry")).to_be_visible()
    await expect(page.get_by_role("button", name="Reload")).to_have_count(0)
    await page.goto(console.address("teams"))
    await expect(page.get_by_role("heading", name="Teams")).to_be_visible()
    await expect(page.get_by_role("button", name="Build a team")).to_have_count(0)
    console.refused = "403"


NARROW: Final = (360, "dark")
WIDE: Final = (1200, "light")


@pytest.mark.parametrize(("width", "scheme"), [NARROW, pytest.param(*WIDE, marks=pytest.mark.console)])
async def test_pages_are_accessible_at_any_width_in_both_schemes(
    console: Console, width: int, scheme: Literal["light", "dark"]
) -> None:
    found: dict[str, list[str]] = {}
    page = await console.entered(width=width, scheme=scheme)
    for path in PAGES:
        await page.goto(console.address(path))
        await loaded(page)
        found[path] = await violations(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path

    assert {page: said for page, said in found.items() if said} == {}
