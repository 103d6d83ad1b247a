"""Hostile texts in names of keys and servers, reasons of reviewers, schemas, definitions, and errors of runs."""

import json
import re
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from starling.core.principal import Scope
from tests.console.conftest import Console, loaded
from tests.console.test_console_promises import (
    DATA,
    all_payloads,
    assert_answers_a_click,
    assert_only_text,
    hostile,
    opened_run,
    replace_question,
    watch,
)
from tests.support.effect_recorder import AGENT
from tests.support.gateway_harness import SERVERS, python
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task, verdict
from tests.support.stored_runs import events_of, stored_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.console]

NARROW: Final = 360
LINE: Final = 50_000  # characters without a space
_CONTROLS: Final = dict.fromkeys([*range(32), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029])


async def narrow(console: Console, *scopes: Scope) -> Page:
    page = await console.entered(*scopes, width=NARROW)
    await watch(page)
    return page


async def assert_fits(page: Page, *labels: str) -> None:
    """Check that the page shows texts with these labels as text, doesn't scroll sideways, and answers."""
    await assert_only_text(page, *labels)
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW, page.url
    await assert_answers_a_click(page)


async def test_name_of_a_key_is_text_in_its_list_its_session_and_the_audit(console: Console) -> None:
    platform, page = console.platform, await narrow(console)
    name = (hostile("keyname") + "w" * 200).translate(_CONTROLS)[:200]
    made = await platform.post("/v1/keys", 201, json={"name": name, "scopes": ["run"]})

    await page.goto(console.address("access"))
    await loaded(page)
    await assert_fits(page, "keyname")

    await page.goto(await console.link(made["key"]))
    await page.get_by_role("heading", name="Inbox").wait_for()
    await assert_fits(page)
    await platform.delete(f"/v1/keys/{made['id']}")


async def test_reasons_of_reviewers_and_a_schema_of_a_question_are_text(console: Console) -> None:
    script = console.platform.script
    reasons = [f"{hostile('reasons')} {'r' * LINE}", all_payloads()]
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls(("read_it", {"what": "a"})))
    script.reviewer(verdict("REJECTED", *reasons))
    page = await narrow(console, Scope.RUN)
    await page.goto(console.address("ask"))
    await page.get_by_label("Request").fill("Read a.")
    await page.get_by_role("button", name="Ask").click()
    await page.wait_for_url("**/console/runs/*")
    await expect(page.get_by_text("failed", exact=True).first).to_be_visible()
    for summary in await page.locator("details > summary").all():
        await summary.click()
    await assert_fits(page, "reasons")

    async with opened_run(console, "schema") as (run, _):
        question = replace_question(run.id, hostile("reason") + "q" * LINE, hostile("message") + "q" * LINE)
        properties = {hostile("field"): {"type": "string", "title": hostile("schema"), "enum": [hostile("choice")]}}
        question.responseSchema.update({"title": hostile("title"), "properties": properties})
        await run.ask(question)
        for path in ("", f"runs/{run.id}"):
            await page.goto(console.address(path))
            await page.get_by_role("article").first.wait_for()
            await assert_fits(page, "message", "reason")


async def test_definitions_in_quarantine_are_text_in_their_diffs(console: Console, tmp_path: Any) -> None:
    words = tmp_path / "words"
    words.write_text("Does it.")
    changing = python(SERVERS / "misbehaving.py", "changing", str(words)).document
    servers = {"effects": console.platform.effects.as_server(approval="unsafe"), "changing": changing}
    await console.platform.post("/v1/registry/reload", json={"mcpServers": servers})
    words.write_text(f"{hostile('changed')} {'d' * 2_000} {all_payloads()[:20_000]}")
    await console.platform.post("/v1/registry/reload?relist=true", json={"mcpServers": servers})
    page = await narrow(console)

    for path in ("registry", "servers/changing"):
        await page.goto(console.address(path))
        await loaded(page)
        await assert_fits(page)
    await page.goto(console.address("servers/changing"))
    await loaded(page)
    await assert_fits(page, "changed")


async def test_error_messages_of_runs_are_text(console: Console) -> None:
    failed = f"{hostile('failed')} {'e' * LINE} {all_payloads().replace(chr(0), '')}"
    key = await stored_run(console.platform.services.storage.engine, events_of(3, failed=failed))
    page = await narrow(console, Scope.RUN)

    for path in (f"runs/{key.id}", "runs"):
        await page.goto(console.address(path))
        await loaded(page)
        await assert_fits(page)
    await page.goto(console.address(f"runs/{key.id}"))
    await loaded(page)
    for summary in await page.locator("details > summary").all():
        await summary.click()
    await assert_fits(page, "failed")


async def test_server_whose_name_is_hostile_is_refused_as_text_and_the_longest_name_fits(console: Console) -> None:
    longest, effects = "W" * 48, console.platform.effects.as_server(approval="unsafe")
    page = await narrow(console)
    await page.goto(console.address("registry"))
    document = {"mcpServers": {"effects": effects, hostile("server") + "s" * LINE: effects}}
    await page.get_by_label("An mcpServers document").fill(json.dumps(document))
    await page.get_by_role("button", name="Show what would change").click()
    await page.get_by_role("alert").first.wait_for()
    console.refused = "422"
    await assert_only_text(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW

    hidden = {**effects, "x-starling": {"description": f"{hostile('about')} {'w' * 500}"}}
    await console.platform.post("/v1/registry/reload", json={"mcpServers": {"effects": effects, longest: hidden}})
    for path in ("registry", f"servers/{longest}"):
        await page.goto(console.address(path))
        await loaded(page)
        await expect(page.get_by_text(longest).first).to_be_visible()
        await assert_fits(page)


async def test_every_string_of_the_collections_is_shown_as_it_is(console: Console) -> None:
    """Each payload is an error of a task, so that one that swallows others would be noticed."""
    names = ("injection_payloads", "naughty_strings", "hidden_characters", "tag_breakout", "memory_poison")
    lines = [json.loads(line) for name in names for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]
    texts = [line.get("payload", line.get("text")) for line in lines]
    cited = re.compile(r"\[\d+\]")  # a source that an answer doesn't have is taken out of it
    shown = [
        one for one in texts if not cited.search(one) and one.isprintable() and "  " not in one and one == one.strip()
    ]
    assert len(shown) > 100
    reply = "\n\n".join(f"{number}: {one}" for number, one in enumerate(texts))
    console.platform.script.run(decision(reply=reply))
    page = await narrow(console, Scope.RUN)
    await page.goto(console.address("ask"))
    await page.get_by_label("Request").fill("Say it all.")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    told = await page.evaluate("document.querySelector('main').textContent")
    missing = [one for one in shown if one not in told]

    assert missing == []
    await assert_fits(page)


async def test_answer_with_a_hostile_source_is_text_in_its_dialog(console: Console) -> None:
    argument = hostile("excerpt") + "a" * LINE
    script = console.platform.script
    script.run(decision(task("t1", AGENT)), t1=calls(("read_it", {"what": argument})), qa=Answer("Read [1]."))
    page = await narrow(console, Scope.RUN)
    await page.goto(console.address("ask"))
    await page.get_by_label("Request").fill("Read a.")
    await page.get_by_role("button", name="Ask").click()
    await page.get_by_role("button", name="Source 1").first.click()
    await page.get_by_role("dialog").wait_for()
    await loaded(page)
    await assert_only_text(page, "excerpt")
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW
