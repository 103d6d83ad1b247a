"""The console without a mouse: every control is reached, focus is seen and never lost."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from starling.core.ids import new_id
from starling.core.principal import Scope
from tests.console.conftest import Console, loaded
from tests.console.test_platform_pages import LINES, SKILL
from tests.support.chat_platform import ChatPlatform
from tests.support.effect_recorder import AGENT
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task
from tests.support.stored_runs import events_of, stored_run
from tests.support.team_specs import member, spec_document

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.console]

_MOST: Final = 250  # controls of a page
_FOCUS: Final = """() => {
    const focused = document.activeElement;
    if (!focused || focused === document.body) return null;
    const style = getComputedStyle(focused), box = focused.getBoundingClientRect();
    const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
    const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, innerHeight);
    const seen = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    window.focusedOnes ??= new Map();
    if (!focusedOnes.has(focused)) focusedOnes.set(focused, focusedOnes.size);
    const label = focused.getAttribute("aria-label") ?? focused.labels?.[0]?.innerText ?? focused.innerText;
    return {
        number: focusedOnes.get(focused),
        tag: focused.tagName.toLowerCase(),
        name: (label ?? "").replace(/\\s+/g, " ").trim(),
        marked: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== "none",
        inside: right > left && bottom > top,
        uncovered: seen !== null && (focused.contains(seen) || seen.contains(focused)),
        closed: focused.tagName === "SUMMARY" && !focused.parentElement.open,
    };
}"""
_LEFT_OUT: Final = """() => {
    const controls = "a[href], button, input, select, textarea, summary, [tabindex='0']";
    const visible = [...document.querySelectorAll(controls)].filter((one) => !one.disabled && one.checkVisibility());
    return visible.filter((one) => !focusedOnes.has(one)).map((one) => one.outerHTML.slice(0, 200));
}"""


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The keys of a page, and what has the focus after each."""

    page: Page

    async def press(self, key: str) -> dict[str, Any] | None:
        await self.page.keyboard.press(key)
        return await self.focus()

    async def focus(self) -> dict[str, Any] | None:
        """Return what has the focus, which has to be seen; None where it is the page as a whole."""
        focused = await self.page.evaluate(_FOCUS)
        assert focused is None or (focused["marked"] and focused["inside"] and focused["uncovered"]), focused
        return focused

    async def to(self, name: str, *, tag: str = "") -> None:
        """Press Tab until a control that is named so has the focus."""
        for _ in range(_MOST):
            focused = await self.press("Tab")
            if focused and focused["name"].startswith(name) and tag in ("", focused["tag"]):
                return
        raise AssertionError(f"no way with Tab to {name!r} of {self.page.url}")

    async def kept(self) -> dict[str, Any]:
        """Return what has the focus, which has to be something."""
        for _ in range(100):
            if focused := await self.focus():
                return focused
            await asyncio.sleep(0.05)
        raise AssertionError(f"nothing has the focus on {self.page.url}")

    async def around(self) -> list[str]:
        """Press Tab until the whole page was gone through, opening what is closed; return the names, in order."""
        names, seen = list[str](), set[int]()
        for _ in range(_MOST):
            focused = await self.press("Tab")
            if focused and focused["number"] in seen:
                break
            if focused:  # between the last and the first one it is none
                seen.add(focused["number"])
                names.append(f"{focused['tag']} {focused['name']}")
                if focused["closed"]:
                    await self.press("Enter")
                    await loaded(self.page)
                    await loaded(self.page)
        return names


async def entered(console: Console, *scopes: Scope) -> tuple[Page, Keyboard]:
    page = await console.entered(*scopes)
    return page, Keyboard(page)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(opened: tuple[ChatPlatform, Browser]) -> tuple[str, str]:
    """Have the platform have one of everything; return the pages of a run that failed and one that succeeded."""
    platform, _ = opened
    platform.script.forget()
    failed = await stored_run(platform.services.storage.engine, events_of(5))
    await platform.post("/v1/skills/import", data=json.dumps(SKILL), headers=LINES)
    reader = member(server="effects", tools=["effects.read_it"])
    for purpose in ("Tells what is new.", "Tells all that is new."):
        await platform.post("/v1/teams/news/versions", 201, json={"spec": spec_document(reader, purpose=purpose)})
    platform.script.run(decision(task("t1", AGENT)), t1=calls(("read_it", {"what": "a"})), qa=Answer("Read [1]."))
    run = (await platform.post("/v1/runs", 202, json={"input": "Read.", "thread_id": "tour"}))["run_id"]
    await platform.ended(run)
    return f"runs/{failed.id}", f"runs/{run}"


async def waiting_run(console: Console) -> str:
    """Return the page of a run that waits for an approval."""
    platform = console.platform
    platform.script.forget()
    platform.script.run(decision(task("t1", AGENT)), t1=calls(("charge", {"what": "tour"})), qa=Answer("Charged [1]."))
    run = (await platform.post("/v1/runs", 202, json={"input": "Charge.", "thread_id": new_id()}))["run_id"]
    async with asyncio.timeout(20):
        while not (await platform.get("/v1/approvals", params={"run_id": run}))["interrupts"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return f"runs/{run}"


async def test_every_control_of_every_page_is_reached_with_tab_and_seen_to_have_the_focus(
    console: Console, runs: tuple[str, str]
) -> None:
    paths = (
        "",
        "ask",
        "runs",
        *runs,
        await waiting_run(console),
        "threads",
        "threads/tour",
        "registry",
        "servers/effects",
        "teams",
        "teams/news",
    )
    page, keyboard = await entered(console)

    for path in (*paths, "teams/news?from=1&to=2", "skills", "access", "nowhere"):
        await page.goto(console.address(path))
        await loaded(page)
        names = await keyboard.around()
        assert "a Inbox" in " ".join(names), path
        assert [name for name in names if not name.partition(" ")[2]] == [], path
        assert await page.evaluate(_LEFT_OUT) == [], path

    page = await console.open_page()
    await page.goto(console.address("#code=used"))
    await page.get_by_role("heading", name="Log in").wait_for()
    assert len(await Keyboard(page).around()) == 2  # the field and its button
    assert await page.evaluate(_LEFT_OUT) == []
    console.refused = "401"


async def test_links_lead_on_with_enter_and_the_focus_stays_on_the_page(
    console: Console, runs: tuple[str, str]
) -> None:
    page, keyboard = await entered(console)
    for name in ("Ask", "Runs", "Threads", "Registry", "Teams", "Skills", "Access", "Inbox"):
        await page.goto(console.address("nowhere"))
        await loaded(page)
        await keyboard.to(name, tag="a")
        await keyboard.press("Enter")
        await page.get_by_role("heading", level=1, name=name).wait_for()
        await loaded(page)
        assert await keyboard.kept(), name

    for path, name in (("runs", "Read."), ("threads", "tour"), ("registry", "effects"), ("teams", "news")):
        await page.goto(console.address(path))
        await loaded(page)
        await keyboard.to(name, tag="a")
        await keyboard.press("Enter")
        await page.wait_for_url(lambda url, path=path: not url.endswith(path))
        await loaded(page)
        assert await keyboard.kept(), name

    await page.goto(console.address("access"))
    await loaded(page)
    await keyboard.to("To the content")
    await keyboard.press("Enter")
    await keyboard.press("Tab")
    assert await page.evaluate("document.querySelector('main').contains(document.activeElement)")


async def test_dialogs_take_the_focus_keep_it_and_give_it_back_at_escape(
    console: Console, runs: tuple[str, str]
) -> None:
    page, keyboard = await entered(console)
    asked = {
        "registry": ("Reload",),
        "teams/news": ("Activate", "Archive"),
        runs[0]: ("Fork from here",),
        await waiting_run(console): ("Cancel",),
    }
    for path, names in asked.items():
        for name in names:
            await page.goto(console.address(path))
            await loaded(page)
            await keyboard.to(name, tag="button")
            await keyboard.press("Enter")
            await assert_dialog_holds_the_focus(keyboard)
            await keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert (await keyboard.kept())["name"].startswith(name)


async def assert_dialog_holds_the_focus(keyboard: Keyboard) -> None:
    dialog = keyboard.page.get_by_role("dialog")
    await dialog.wait_for()
    inside = "document.querySelector('dialog[open]').contains(document.activeElement)"
    assert await keyboard.page.evaluate(inside)
    for key in ("Tab",) * 6 + ("Shift+Tab",) * 3:
        await keyboard.press(key)
        assert await keyboard.page.evaluate(f"document.activeElement === document.body || {inside}")


async def test_what_was_decided_leaves_the_focus_on_the_page(console: Console, runs: tuple[str, str]) -> None:
    page, keyboard = await entered(console)
    for path, names in (
        ("teams/news", ("Activate 2",)),
        ("skills", ("Read the letter.", "Retire")),
        ("skills?state=retired", ("Read the letter.", "Delete")),
        ("teams/news", ("Archive",)),
        (await waiting_run(console), ("Approve",)),
        (await waiting_run(console), ("Cancel",)),
    ):
        await page.goto(console.address(path))
        await loaded(page)
        for name in names:
            await keyboard.to(name, tag="button")
            await keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        if names[-1] != "Approve":
            await dialog.wait_for()
            if await dialog.get_by_label("Reason").count():
                await page.keyboard.type("By hand.")
            await keyboard.to(names[-1], tag="button")
            await keyboard.press("Enter")
            await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("button", name=names[-1], exact=True)).to_have_count(0)
        await loaded(page)
        assert await keyboard.kept(), names

    await page.goto(console.address("registry"))
    await loaded(page)
    for _ in range(2):  # the second one is that of the dialog
        await keyboard.to("Reload", tag="button")
        await keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("button", name="Reload")).to_be_enabled()
    assert (await keyboard.kept())["name"] == "Reload"


async def test_request_is_asked_and_runs_are_filtered_with_keys_alone(console: Console, runs: tuple[str, str]) -> None:
    console.platform.script.forget()
    console.platform.script.run(decision(reply="Nobody was asked."))
    page, keyboard = await entered(console)
    await keyboard.to("Ask", tag="a")
    await keyboard.press("Enter")
    await page.get_by_label("Request").wait_for()
    await keyboard.to("Request")
    await page.keyboard.type("Say something.")
    await keyboard.to("Mode", tag="select")
    await keyboard.press("ArrowDown")
    mode = await page.get_by_label("Mode").input_value()
    await keyboard.to("Ask", tag="button")
    await keyboard.press("Enter")
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await expect(page.get_by_text(mode.upper()).first).to_be_visible()

    await keyboard.to("Runs", tag="a")
    await keyboard.press("Enter")
    await keyboard.to("Status", tag="select")
    await page.keyboard.type("failed")
    await expect(page.get_by_role("link", name="Say something.")).to_have_count(0)
    await page.wait_for_url("**/console/runs?*failed*")
    assert await keyboard.kept()


async def test_inbox_is_answered_one_by_one_and_together_and_a_field_takes_its_letters(
    console: Console, runs: tuple[str, str]
) -> None:
    for other in (await console.platform.get("/v1/approvals"))["interrupts"]:
        await console.platform.post(f"/v1/runs/{other['run_id']}/cancel")
        await console.platform.ended(other["run_id"])
    waiting = [await waiting_run(console) for _ in range(3)]
    page, keyboard = await entered(console)
    cards = page.get_by_role("article")
    await expect(cards).to_have_count(3)

    for key in ("j", "j", "k", "e"):
        await keyboard.press(key)
    await page.keyboard.type("jarx")
    assert (await keyboard.kept())["tag"] in ("input", "textarea")
    await keyboard.press("Escape")
    await expect(cards).to_have_count(3)
    await keyboard.press("r")
    await expect(cards).to_have_count(2)
    assert await keyboard.kept()

    for key in ("k", "x", "j", "x", "A"):
        await keyboard.press(key)
    await assert_dialog_holds_the_focus(keyboard)
    await keyboard.to("Approve", tag="button")
    await keyboard.press("Enter")
    await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert await keyboard.kept()
    ended = [await console.platform.ended(path.rpartition("/")[2]) for path in waiting]
    assert sorted(run["status"] for run in ended) == ["failed", "succeeded", "succeeded"]
