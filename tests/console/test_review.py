"""What the console does in moments that are rare: outages, held keys, other tabs, links that are too old."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from starling.core.events.run_events import Warn
from starling.core.principal import Scope
from tests.console.conftest import Console, loaded
from tests.console.test_ways import ask
from tests.support.effect_recorder import AGENT
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task, verdict
from tests.support.run_factories import new_question
from tests.support.stored_runs import events_of, stored_run
from tests.support.written_run import WrittenRun, written_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIDDEN = "a\u202etxt.exe\u200b"


def charge(console: Console, *whats: str) -> None:
    """Have the next run make these calls at once, each of which needs an approval."""
    script = console.platform.script
    tasks = [task(f"t{number}", AGENT) for number, _ in enumerate(whats)]
    answers: dict[str, Any] = {f"t{number}": calls(("charge", {"what": what})) for number, what in enumerate(whats)}
    script.run(decision(*tasks), qa=Answer("Charged."), **answers)


async def bearer_of(page: Page) -> str:
    return await page.evaluate("localStorage.getItem('starling.token')")


async def refuse(route: Route) -> None:
    """Answer as a proxy whose platform is away: without a body."""
    await route.fulfill(status=502, body="")


@pytest.mark.console
async def test_held_key_approves_one_call_whose_hidden_characters_are_shown(console: Console) -> None:
    charge(console, f"{HIDDEN}1", f"{HIDDEN}2")
    page = await console.entered(Scope.RUN)
    await ask(page, "Charge both.")
    await expect(page.get_by_role("row").get_by_text("waiting", exact=True)).to_have_count(2)
    await page.get_by_role("link", name="Inbox").click()
    await expect(page.get_by_role("article")).to_have_count(2)
    await expect(page.get_by_role("article").first).to_contain_text(r'"what": "a\u202etxt.exe\u200b')

    await page.keyboard.press("j")
    for _ in range(5):
        await page.keyboard.down("a")

    await expect(page.get_by_role("article")).to_have_count(1)
    await expect(page.get_by_role("article")).to_be_focused()
    await page.keyboard.down("a")
    await page.keyboard.up("a")
    await expect(page.get_by_role("article")).to_have_count(1)
    await page.get_by_role("button", name="Reject").click()
    await expect(page.get_by_role("article")).to_have_count(0)
    run_id, *_ = await console.platform.run_ids()
    await console.platform.ended(run_id)
    assert len([done for done in console.platform.effects.done() if HIDDEN in done]) == 1


@pytest.mark.console
async def test_fork_of_a_conservative_run_is_conservative(console: Console) -> None:
    console.platform.script.run(decision(reply="Nothing is to be done."))
    page = await console.entered(Scope.RUN)
    await page.goto(console.address("ask?mode=CONSERVATIVE"))
    await page.get_by_label("Request").fill("Look.")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    run = page.url

    fork = page.get_by_role("button", name="Fork from here")
    await fork.click()
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await expect(fork).to_be_focused()
    await fork.click()
    await page.get_by_role("dialog").get_by_role("button", name="Fork from here").click()

    await page.wait_for_url(lambda url: url != run)
    forked = await console.platform.get(f"/v1/runs/{page.url.rpartition('/')[2]}")
    assert forked["config"]["mode"] == "CONSERVATIVE"


@pytest.mark.console
async def test_log_out_ends_the_session_in_all_tabs_and_a_pasted_link_begins_another(console: Console) -> None:
    page = await console.entered(Scope.RUN)
    other = await page.context.new_page()
    await other.goto(console.address())
    await other.get_by_role("heading", name="Inbox").wait_for()
    assert await other.get_by_role("navigation").get_by_role("link", name="Registry").count() == 0
    headers = {"Authorization": f"Bearer {await bearer_of(page)}"}

    await page.get_by_role("button", name="Log out").click()

    for tab in (page, other):
        await expect(tab.get_by_role("heading", name="Log in")).to_be_visible()
    async with console.platform.client.get("/v1/console/session", headers=headers) as response:
        assert response.status == 401
    await page.get_by_label("Or paste an API key").fill("sk-starling-…")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("not a Starling key")
    link = await console.link()
    await page.evaluate("(link) => { location.href = link; }", link)
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    await expect(other.get_by_role("heading", name="Inbox")).to_be_visible()
    await page.evaluate("(link) => { location.href = link; }", link)  # which is used up: others stay logged in
    await expect(page.get_by_role("alert")).to_contain_text("used already")
    await other.reload()
    await expect(other.get_by_role("heading", name="Inbox")).to_be_visible()
    console.refused = "401"


@pytest.mark.console
async def test_outage_and_a_refusal_without_a_body_are_shown_and_pass(console: Console) -> None:
    page = await console.entered()
    console.refused = "502"
    await page.route("**/v1/approvals*", refuse)
    await expect(page.get_by_role("alert")).to_contain_text("status 502")
    await page.unroute("**/v1/approvals*")
    await page.evaluate("dispatchEvent(new Event('offline'))")  # the machine has no network, and the platform itself
    await expect(page.get_by_role("alert")).to_have_count(0)

    await page.goto(console.address("access"))
    await page.get_by_label("What to switch off").fill("nothing")
    await page.route("**/v1/switches", refuse)
    await page.get_by_role("button", name="Switch off").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("A test.")
    await page.get_by_role("dialog").get_by_role("button", name="Switch off").click()
    await expect(page.get_by_role("alert").first).to_contain_text("status 502")


@pytest.mark.console
async def test_what_an_ended_run_did_not_reach_is_no_state_of_its_agent_and_said_in_a_comparison(
    console: Console,
) -> None:
    script = console.platform.script
    script.supervisor(decision(task("t1", AGENT), task("t2", AGENT, after=["t1"])))
    script.agent("t1", calls(("read_it", {"what": "a"})))
    script.reviewer(verdict("REJECTED", "It is not enough."))
    script.qa(Answer("Nothing."))
    page = await console.entered(Scope.RUN)
    await ask(page, "Read a, then b.")
    await expect(page.get_by_role("row").filter(has_text="t2")).to_contain_text("not reached")
    await expect(page.locator(".star title").last).to_have_text(f"{AGENT}: failed")
    failed = page.url.rpartition("/")[2]
    script.forget()
    script.run(decision(reply="Nothing is to be done."))
    await ask(page, "Do nothing.")
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()

    await page.goto(console.address(f"runs/{failed}/with/{page.url.rpartition('/')[2]}"))

    await expect(page.locator(f".side[data-label='Run {failed[-8:]}']").first).to_be_visible()
    await expect(page.get_by_text("not in this run", exact=True).first).to_be_visible()


@pytest.mark.console
async def test_back_shows_a_list_where_it_was_left_and_a_link_shows_a_page_from_its_beginning(console: Console) -> None:
    for _ in range(40):
        await stored_run(console.platform.services.storage.engine, events_of(1))
    page = await console.entered(Scope.RUN)
    await page.get_by_role("link", name="Runs").click()
    row = page.get_by_role("row").nth(30)
    await row.scroll_into_view_if_needed()
    left = await page.evaluate("scrollY")
    assert left > 0

    await row.get_by_role("link").first.click()
    await page.get_by_role("heading", name="Run ").wait_for()
    assert await page.evaluate("scrollY") == 0
    await page.go_back()

    async with asyncio.timeout(20):
        await page.evaluate(
            """(left) => new Promise((resolve) => {
                const look = () => scrollY === left ? resolve() : requestAnimationFrame(look);
                look();
            })""",
            left,
        )
    await expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()


@pytest.mark.console
async def test_audit_shows_older_changes_when_asked(console: Console) -> None:
    for _ in range(51):
        await console.platform.key()
    page = await console.entered()
    await page.goto(console.address("access"))
    changes = page.get_by_role("region", name="Audit").get_by_role("row")
    await expect(changes).to_have_count(51)

    await page.get_by_role("button", name="Older ones").click()

    await expect(page.get_by_role("button", name="Older ones")).to_have_count(0)
    await expect(changes).not_to_have_count(51)


@pytest.mark.console
async def test_document_that_takes_long_is_shown_while_events_come(console: Console) -> None:
    async def late(route: Route) -> None:
        await asyncio.sleep(1.5)  # of a slow line
        await route.continue_()

    async with opened_run(console, "slow") as (run, page):
        await page.route(f"**/v1/runs/{run.id}?*", late)
        for number in range(60):
            run.writer.emit(Warn(code="slow", message=f"Event {number}."))
            await asyncio.sleep(0.1)
        assert await page.get_by_text("Event 5.").count() == 1
        await expect(page.get_by_text("Event 59.")).to_be_visible()
        await page.unroute_all(behavior="ignoreErrors")


@asynccontextmanager
async def opened_run(console: Console, thread: str) -> AsyncGenerator[tuple[WrittenRun, Page]]:
    async with written_run(console.platform.services, thread=thread) as run:
        page = await console.entered(Scope.RUN)
        await page.goto(console.address(f"runs/{run.id}"))
        await loaded(page)
        yield run, page


@pytest.mark.console
async def test_answer_that_came_too_late_is_told_after_its_question_is_gone(console: Console) -> None:
    async with opened_run(console, "late") as (run, page):
        question = replace(new_question(run.id), responseSchema={"properties": {}})
        await run.ask(question)
        await page.goto(console.address())
        await page.get_by_label("Answer").fill("That one.")
        reply = {"interruptId": question.id, "status": "resolved", "payload": {"answer": "This one."}}
        shown = await console.platform.get("/v1/approvals")
        await page.route("**/v1/approvals*", lambda route: route.fulfill(json=shown))
        await console.platform.post(f"/v1/runs/{run.id}/resume", 202, json=[reply])

        async def send(route: Route) -> None:
            await page.unroute("**/v1/approvals*")
            await route.continue_()

        await page.route("**/resume", send)
        await page.get_by_role("button", name="Send").click()

        await expect(page.get_by_role("article")).to_have_count(0)
        await expect(page.get_by_role("alert")).to_be_visible()
        console.refused = "409"
        await run.end()


@pytest.mark.console
async def test_filters_of_an_address_are_shown_and_changed_together(console: Console) -> None:
    page = await console.entered(Scope.RUN)
    for number in range(2):
        async with written_run(console.platform.services, thread=f"filter{number}") as run:
            await run.end()
    before, *_ = await console.platform.run_ids()
    await page.goto(console.address(f"runs?before={before}"))
    await page.get_by_label("Status").select_option("failed")
    await page.wait_for_url("**/runs?status=failed")

    await page.goto(console.address("ask?agent=nobody"))
    await expect(page.get_by_label("Agent")).to_have_value("nobody")
    await page.get_by_label("Request").fill("Look.")
    console.refused = "502"
    await page.route("**/v1/runs", refuse)
    keys: list[str] = []
    for _ in range(2):
        async with page.expect_request("**/v1/runs") as asked:
            await page.get_by_role("button", name="Ask").click()
        keys.append((await asked.value).headers["idempotency-key"])
        await expect(page.get_by_role("alert")).to_contain_text("status 502")
    assert keys[0] == keys[1]


@pytest.mark.console
async def test_source_is_marked_after_characters_of_two_units(console: Console) -> None:
    read = calls(("read_it", {"what": "😀😀😀\nThe price is 42 euros.\nIt is high."}))
    console.platform.script.run(decision(task("t1", AGENT)), t1=read, qa=Answer("The price is 42 euros [1]."))
    page = await console.entered(Scope.RUN)
    await ask(page, "What is the price?")

    await page.get_by_role("button", name="Source 1").first.click()

    run = await console.platform.get(f"/v1/runs/{page.url.rpartition('/')[2]}")
    excerpt = run["result"]["citations"][0]["excerpts"][0]
    assert excerpt["start"] > 0
    await expect(page.get_by_role("dialog").locator("mark")).to_have_text(excerpt["text"])


@pytest.mark.console
async def test_thread_of_many_states_is_read_to_its_end(console: Console) -> None:
    messages = [{"role": "user", "content": f"Message {number}."} for number in range(210)]
    console.platform.script.run(decision(reply="Begun."))
    page = await console.entered(Scope.RUN)
    await page.goto(console.address("ask?thread=long"))
    await page.get_by_label("Request").fill("Begin.")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await console.platform.post("/v1/threads/long/states", 201, json={"messages": messages})

    await page.get_by_role("link", name="long", exact=True).click()
    await expect(page.get_by_text("Message 0.")).to_be_visible()
    await page.get_by_role("button", name="Further ones").click()

    await expect(page.get_by_text("Message 209.")).to_be_visible()
    await page.get_by_role("button", name="From the beginning").click()
    await expect(page.get_by_text("Message 0.")).to_be_visible()
