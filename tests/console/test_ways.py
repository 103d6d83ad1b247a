"""The main ways through the console, in a browser."""

import pytest
from playwright.async_api import Page, expect

from starling.core.principal import Scope
from tests.console.conftest import Console
from tests.support.effect_recorder import AGENT
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task
from tests.support.stored_runs import events_of, stored_run

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_call_in_doubt_is_decided(console: Console) -> None:
    read = calls(("read_it", {"what": "a"}), ("continue", {}))  # the server starts in this call, which may take long
    charge = calls(("charge", {"what": "b", "stall": "after", "gate": "never"}))
    settings = {"effect": "unsafe", "timeout": 1}
    async with console.platform.client.put("/v1/servers/effects/tools/charge", json=settings) as response:
        assert response.status == 200, await response.text()
    console.platform.script.run(decision(task("t1", AGENT)), t1=[read, charge], qa=Answer("Charged [1]."))
    page = await console.entered(Scope.RUN)
    await ask(page, "Charge b.")
    await page.get_by_role("button", name="Approve").click()

    await page.get_by_role("button", name="It was done").click()

    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    assert console.platform.effects.done().count("charge b") == 1


async def test_run_of_a_hundred_tasks_with_long_lines_is_shown_whole(console: Console) -> None:
    key = await stored_run(console.platform.services.storage.engine, events_of(100, chars=20_000))
    page = await console.entered(Scope.RUN)

    await page.goto(console.address(f"runs/{key.id}"))

    await expect(page.get_by_role("row")).to_have_count(101)
    await expect(page.get_by_role("heading", name="Cause")).to_be_visible()


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
