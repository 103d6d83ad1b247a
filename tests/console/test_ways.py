"""The main ways through the console, in a browser."""

import json
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from tests.console.conftest import Console, loaded, violations
from tests.support.effect_recorder import AGENT
from tests.support.gateway_harness import SERVERS, python
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task
from tests.support.stored_runs import events_of, stored_run

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


async def ask(page: Page, text: str) -> None:
    await page.get_by_role("navigation").get_by_role("link", name="Ask").click()
    await page.get_by_label("Request").fill(text)
    await page.get_by_role("button", name="Ask").click()
    await page.wait_for_url("**/console/runs/*")


async def test_request_is_seen_at_work_and_its_answer_leads_to_the_excerpt(console: Console) -> None:
    script = console.platform.script
    script.run(decision(task("t1", AGENT, "read a")), t1=calls(("read_it", {"what": "a"})), qa=Answer("Read a [1]."))
    page = await console.entered(Scope.RUN)

    await ask(page, "Read a.")

    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await expect(page.get_by_role("img", name="The supervisor, and around it")).to_be_visible()
    await page.get_by_role("button", name="Source 1").click()
    source = page.get_by_role("dialog", name="Source 1")
    await expect(source).to_contain_text("effects.read_it")
    await expect(source.locator("figure pre").first).to_contain_text("a")


async def test_call_is_approved_in_mid_run_with_the_keyboard_alone(console: Console) -> None:
    platform = console.platform
    platform.script.run(decision(task("t1", AGENT)), t1=calls(("charge", {"what": "a"})), qa=Answer("Charged [1]."))
    page = await console.entered(Scope.RUN)
    await ask(page, "Charge a.")
    await expect(page.get_by_role("article")).to_contain_text('"what": "a"')

    await page.goto(console.address())
    await expect(page.get_by_role("article")).to_contain_text("asked by ")
    await page.keyboard.press("j")
    await page.keyboard.press("a")

    await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    run_id, *_ = await platform.run_ids()
    await platform.ended(run_id)
    assert platform.effects.done().count("charge a") == 1
    await page.goto(console.address(f"runs/{run_id}"))
    await expect(page.get_by_text("can't be undone by a rewind")).to_be_visible()


async def test_cause_stands_first_where_a_run_failed_and_a_fork_begins_from_there(console: Console) -> None:
    script = console.platform.script
    script.run(decision(task("t1", AGENT, "read a")), t1=Answer("It is a."), qa=Answer("Nothing."))
    page = await console.entered(Scope.RUN)
    await ask(page, "Read a.")
    await expect(page.get_by_role("heading", name="Cause")).to_be_visible()
    await expect(page.locator(".card.failed")).to_contain_text("No tool was called")
    failed = page.url

    await page.get_by_role("button", name="Fork from here").click()
    await page.get_by_role("dialog").get_by_role("button", name="Fork from here").click()

    await page.wait_for_url(lambda url: url != failed)
    forked = page.url.rpartition("/")[2]
    assert (await console.platform.get(f"/v1/runs/{forked}"))["forked_from"]["run"] == failed.rpartition("/")[2]


async def test_key_that_is_revoked_ends_its_session_in_the_open_page(console: Console) -> None:
    page, keys = await console.entered(Scope.RUN), console.platform.services.storage.keys
    *_, key = await keys.every(HOST_ADMIN)

    await keys.revoke(HOST_ADMIN, key.id, Actor.local("test"))
    await page.get_by_role("link", name="Runs").click()
    await page.reload()

    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text("revoked")
    console.refused = "401"


async def test_link_is_valid_once_and_leaves_no_code_in_the_address(console: Console) -> None:
    link = await console.link()
    first, second = await console.open_page(), await console.open_page()

    await first.goto(link)
    await expect(first.get_by_role("heading", name="Inbox")).to_be_visible()
    await second.goto(link)

    await expect(second.get_by_role("alert")).to_contain_text("used already")
    assert "code" not in first.url + second.url
    console.refused = "401"


async def test_key_without_a_scope_sees_no_button_for_what_it_may_not_do(console: Console) -> None:
    page = await console.entered(Scope.RUN)

    await page.goto(console.address("registry"))
    await expect(page.get_by_role("heading", name="Registry")).to_be_visible()
    await expect(page.get_by_role("button", name="Reload")).to_have_count(0)
    await page.goto(console.address("teams"))
    await expect(page.get_by_role("heading", name="Teams")).to_be_visible()
    await expect(page.get_by_role("button", name="Build a team")).to_have_count(0)
    console.refused = "403"


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


async def test_call_in_doubt_is_decided(console: Console) -> None:
    charge = calls(("charge", {"what": "b", "stall": "after", "gate": "never"}))
    settings = {"effect": "unsafe", "timeout": 1}
    async with console.platform.client.put("/v1/servers/effects/tools/charge", json=settings) as response:
        assert response.status == 200, await response.text()
    console.platform.script.run(decision(task("t1", AGENT)), t1=charge, qa=Answer("Charged [1]."))
    page = await console.entered(Scope.RUN)
    await ask(page, "Charge b.")
    await page.get_by_role("button", name="Approve").click()

    await page.get_by_role("button", name="It was done").click()

    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    assert console.platform.effects.done().count("charge b") == 1


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


async def test_run_of_a_hundred_tasks_with_long_lines_is_shown_whole(console: Console) -> None:
    key = await stored_run(console.platform.services.storage.engine, events_of(100, chars=20_000))
    page = await console.entered(Scope.RUN)

    await page.goto(console.address(f"runs/{key.id}"))

    await expect(page.get_by_role("row")).to_have_count(101)
    await expect(page.get_by_role("heading", name="Cause")).to_be_visible()


async def test_build_from_a_wish_is_seen_while_it_is_made(console: Console) -> None:
    page = await console.entered()
    await page.goto(console.address("teams"))

    await page.get_by_label("What should it do?").fill("Read letters.")
    await page.get_by_role("button", name="Build a team").click()

    await page.wait_for_url("**/console/runs/*")
    await expect(page.get_by_text("Read letters.").first).to_be_visible()


async def test_pages_are_accessible_at_any_width_in_both_schemes(console: Console) -> None:
    found: dict[str, list[str]] = {}
    views: tuple[tuple[int, Literal["light", "dark"], tuple[str, ...]], ...] = (
        (360, "dark", PAGES),
        (1200, "light", ("registry", "access")),
    )
    for width, scheme, pages in views:
        page = await console.entered(width=width, scheme=scheme)
        for path in pages:
            await page.goto(console.address(path))
            await loaded(page)
            found[f"{path} {width}"] = await violations(page)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} at {width}"

    assert {page: said for page, said in found.items() if said} == {}


async def test_hostile_texts_are_shown_as_text(console: Console) -> None:
    markup = "<img src=x onerror=alert(1)> <script>document.title='taken'</script>"
    hostile = f"{markup} \x1b[31mred \u202etxt.exe {'x' * 300_000}"
    console.platform.script.run(decision(reply=hostile))
    page = await console.entered(Scope.RUN)

    await ask(page, hostile[:90_000])

    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
    assert "taken" not in await page.title()
    assert await page.locator("img[src=x]").count() == 0
