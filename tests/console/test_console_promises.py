"""What the console promises whatever strangers write, connections do and keys may."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, Request, expect
from sqlalchemy import text

from starling.core.events.run_events import (
    Plan,
    PlannedTask,
    Reflection,
    TaskResult,
    TaskStart,
    ToolLog,
    ToolResult,
    ToolStart,
    Warn,
)
from starling.core.principal import Scope
from tests.chaos.workload import Call
from tests.console.conftest import Console, loaded
from tests.console.test_platform_pages import LINES, SKILL
from tests.support.effect_recorder import AGENT
from tests.support.local_access import admin_headers
from tests.support.model_script import Answer
from tests.support.planned_runs import PlannedRuns, first_call, planned_runs
from tests.support.platform import calls, decision, task, verdict
from tests.support.run_factories import new_question
from tests.support.tcp_proxy import TcpProxy
from tests.support.team_specs import member, spec_document
from tests.support.written_run import WrittenRun, written_run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.console]

DATA: Final = Path("tests/data/security")
ANSI: Final = "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07\x1b[2J\x08\x7f\x85\u2028\u2029"
ATTACK: Final = (
    "<img src=x onerror=\"window.taken=1\"><script>window.taken=1</script><svg onload='window.taken=1'>"
    "<iframe srcdoc='<script>parent.taken=1</script>'></iframe></pre></textarea></title><style>*{display:none}</style>"
    '<a href="javascript:window.taken=1">x</a> [y](javascript:window.taken=1) ![z](http://evil.example/leak.png)'
    "<base href=http://evil.example><meta http-equiv=refresh content='0;url=http://evil.example'>"
)
LONG: Final = 10_000_000  # characters of a line
_REFETCHES: Final = 2  # a second
_NEAR: Final = 5  # seconds in which a page answers a click, on a machine that is busy


def rows(name: str, key: str) -> list[str]:
    return [json.loads(line)[key] for line in (DATA / name).read_text("utf-8").splitlines()]


def hostile(label: str) -> str:
    """Return markup, terminal sequences, and characters that turn or hide others, after a label to find it by."""
    return f"{label} {ATTACK} {ANSI} \u202etxt.exe\u2066 {label}-end"


def all_payloads() -> str:
    payloads = rows("injection_payloads.jsonl", "payload") + rows("naughty_strings.jsonl", "text")
    return "\n".join(payloads + rows("hidden_characters.jsonl", "text") + rows("tag_breakout.jsonl", "payload"))


async def watch(page: Page) -> None:
    """Note violations of the content security policy; a dialog of the browser would be a script's."""
    await page.add_init_script(
        "window.reports = []; addEventListener('securitypolicyviolation', (event) => "
        "reports.push(`${event.violatedDirective} ${event.blockedURI}`));"
    )
    await page.reload()


async def assert_only_text(page: Page, *labels: str) -> None:
    """Check that texts with these labels are on the page whole, as text, and did nothing."""
    told = await page.evaluate("document.body.textContent")
    for label in labels:
        beginning = f"{label} {ATTACK[:150]}"
        assert beginning in told or json.dumps(beginning)[1:-1] in told, label
    assert await page.evaluate("window.taken") is None
    assert await page.evaluate("window.reports") == []
    strangers = "img:not([src^='/console/']), iframe, script:not([src^='/console/']), style, base, meta[http-equiv]"
    assert await page.locator(strangers).count() == 0
    assert await page.locator("a[href^='javascript'], [onerror], [onload]").count() == 0


async def assert_answers_a_click(page: Page) -> None:
    """Check that a click has its effect soon, and so that nothing freezes the page."""
    begun = monotonic()
    await page.get_by_role("navigation").get_by_role("link", name="Ask").click()
    await page.get_by_label("Request").wait_for()
    assert monotonic() - begun < _NEAR


@asynccontextmanager
async def opened_run(console: Console, thread: str) -> AsyncGenerator[tuple[WrittenRun, Page]]:
    """Give a run that goes on, and its page."""
    async with written_run(console.platform.services, thread=thread) as run:
        page = await console.entered(Scope.RUN)
        await watch(page)
        await page.goto(console.address(f"runs/{run.id}"))
        await loaded(page)
        yield run, page


async def streams(console: Console) -> int:
    """Return how many event streams the API serves."""
    async with console.platform.client.get("/metrics") as response:
        found = re.search(r"^starling_streams_open (\d+)", await response.text(), re.MULTILINE)
    assert found
    return int(found[1])


async def until_streams(console: Console, count: int) -> None:
    async with asyncio.timeout(20):
        while await streams(console) != count:  # noqa: ASYNC110 - of a browser
            await asyncio.sleep(0.05)


async def show(page: Page, *, hidden: bool) -> None:
    """Have the page be told that it is hidden, or shown again; a browser without windows hides none."""
    await page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            const state = hidden ? "hidden" : "visible";
            Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


async def test_every_field_of_a_run_that_a_stranger_controls_is_text(console: Console) -> None:
    async with opened_run(console, f"50%/..%2f?#& {ATTACK}"[:200]) as (run, page):
        write_hostile_run(run)
        await run.ask(replace_question(run.id, hostile("reason"), hostile("message")))
        await run.say(hostile("draft"))
        await expect(page.get_by_text("draft <img").first).to_be_visible()
        await expect(page.get_by_text("task <img").first).to_be_visible()
        for summary in await page.locator("details > summary").all():
            await summary.click()
        labels = ("plan", "task", "argument", "result", "verdict", "warning", "agent", "tool", "draft", "message")

        await assert_only_text(page, *labels)
        await page.goto(console.address())
        await page.get_by_role("article").first.wait_for()
        await assert_only_text(page, "message")

        await run.end(hostile("reply") + all_payloads())
        for path in (f"runs/{run.id}", "runs", "threads"):
            await page.goto(console.address(path))
            await loaded(page)
            await assert_only_text(page)
        await page.get_by_role("link", name="50%/..%2f?#&").click()
        await expect(page.get_by_role("heading", name="50%/..%2f?#&")).to_be_visible()
        await loaded(page)
        await assert_only_text(page)
        await page.goto(console.address(f"runs/{run.id}"))
        await loaded(page)
        await assert_only_text(page, "reply")
        await assert_answers_a_click(page)


_UNNAMED: Final = dict.fromkeys([*range(32), 0x7F])  # what no name may have


def write_hostile_run(run: WrittenRun) -> None:
    agent = hostile("agent")
    path: dict[str, Any] = {"task_id": "t1", "path": "t1"}
    planned = PlannedTask(id="t1", agent=agent, task=hostile("task"), depends_on=[], status="running")
    call: dict[str, Any] = {"name": hostile("tool"), "call_id": "t1.0.0"}
    attempt: dict[str, Any] = {**path, "agent": agent, "attempt": 1}
    for event in (
        Plan(version=1, plan=[hostile("step")], tasks=[planned], thought_process=hostile("plan")),
        TaskStart(**attempt),
        ToolStart(**call, **path, args={hostile("key"): hostile("argument")}),
        ToolLog(**call, **path, level="error", message=hostile("log")),
        ToolResult(**call, result=hostile("result") + all_payloads(), status="failed"),
        Reflection(**attempt, status="REJECTED", reasons=[hostile("verdict")]),
        TaskResult(**attempt, status="failed", summary=hostile("summary"), artifacts=[], code="tool_error"),
        Warn(code="tool_error", message=hostile("warning"), path="t1"),
    ):
        run.writer.emit(event)


def replace_question(run_id: str, reason: str, message: str) -> Any:
    schema = {"type": "object", "properties": {"text": {"type": "string", "title": hostile("schema")}}}
    return replace(new_question(run_id), reason=reason, message=message, responseSchema=schema)


async def test_line_of_ten_megabytes_in_a_result_a_draft_or_an_answer_freezes_nothing(console: Console) -> None:
    async with opened_run(console, "long") as (run, page):
        write_hostile_run(run)
        await run.say("draft " + "x" * LONG)
        await expect(page.get_by_text("draft xxx").first).to_be_visible(timeout=30_000)
        await assert_answers_a_click(page)

        run.writer.emit(ToolStart(name="a", call_id="t1.0.1", task_id="t1", path="t1", args={"what": "y" * LONG}))
        run.writer.emit(ToolResult(name="a", call_id="t1.0.1", result="z" * LONG, status="succeeded"))
        await run.end("reply " + "x" * LONG)
        for path in (f"runs/{run.id}", "runs", "threads"):
            await page.goto(console.address(path))
            await loaded(page)
            await assert_answers_a_click(page)


async def test_names_reasons_and_servers_that_strangers_wrote_are_text(console: Console) -> None:
    platform, page = console.platform, await console.entered()
    await watch(page)
    name = hostile("name").translate(_UNNAMED)[:200]
    switch = {"kind": "agent", "name": AGENT, "tenant": "nobody", "reason": hostile("switch")[:500]}
    await platform.put("/v1/switches", json=switch)
    await platform.post("/v1/keys", 201, json={"name": name})
    async with platform.services.storage.engine.begin() as connection:
        found = {"said": hostile("description"), "error": hostile("error"), "remedy": hostile("remedy")}
        change = "UPDATE servers SET description = :said, error = :error, remedy = :remedy, state = 'degraded'"
        await connection.execute(text(change), found)
        described = (
            "UPDATE tools SET definition = jsonb_set(definition, '{description}', to_jsonb(CAST(:said AS text)))"
        )
        await connection.execute(text(described), {"said": hostile("tool")})
    wanted = [{"tool": "effects.read_it", "arguments": {"what": hostile("argument")}}]
    skill = SKILL | {
        "calls": wanted,
        "task": hostile("skill"),
        "template": hostile("template"),
        "outcome": "It is read.",
    }
    await platform.post("/v1/skills/import", data=json.dumps(skill), headers=LINES)
    spec = spec_document(member(goal=hostile("goal")[:300]), purpose=hostile("purpose")[:300])
    await platform.post("/v1/teams/news/versions", 201, json={"spec": spec})
    shown = {
        "access": ["switch"],
        "registry": ["error", "remedy"],
        "servers/effects": ["error", "description", "tool"],
        "ask": [],
        "teams": ["purpose"],
        "teams/news": ["purpose", "goal"],
        "skills": ["template"],
    }
    try:
        for path, labels in shown.items():
            await page.goto(console.address(path))
            await loaded(page)
            await assert_only_text(page, *labels)
        await page.get_by_role("button", name="template <img").click()
        await loaded(page)
        await assert_only_text(page, "template", "argument")
        await assert_answers_a_click(page)
    finally:
        await platform.delete(f"/v1/switches?kind=agent&name={AGENT}&tenant=nobody", 204)
        async with platform.services.storage.engine.begin() as connection:
            await connection.execute(
                text("UPDATE servers SET description = '', error = '', remedy = '', state = 'ready'")
            )


async def test_real_run_whose_model_and_request_are_hostile_waits_for_approval_as_text(console: Console) -> None:
    charge = calls(("charge", {"what": hostile("argument")}))
    script = console.platform.script
    script.supervisor(decision(task("t1", AGENT, hostile("task")), thought_process=hostile("plan")))
    script.agent("t1", charge)
    script.reviewer(verdict("APPROVED", hostile("verdict")))
    script.qa(Answer(hostile("answer") + " [1]"))
    page = await console.entered(Scope.RUN)
    await watch(page)
    await page.goto(console.address("ask"))
    await page.get_by_label("Request").fill(hostile("request"))
    await page.get_by_role("button", name="Ask").click()

    await page.get_by_role("button", name="Approve").wait_for()
    await assert_only_text(page, "request", "task")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await assert_only_text(page, "request", "task")
    await page.get_by_role("button", name="Source 1").first.click()
    await page.get_by_role("dialog").wait_for()
    assert "charge argument <img" in (await page.get_by_role("dialog").text_content() or "")
    await assert_only_text(page)


async def test_page_holds_one_stream_and_none_while_it_is_hidden_or_left(console: Console) -> None:
    async with opened_run(console, "stream") as (run, page):
        await until_streams(console, 1)

        await show(page, hidden=True)
        await until_streams(console, 0)
        await run.say("Written while it was hidden. ")
        await show(page, hidden=False)
        await until_streams(console, 1)
        await expect(page.get_by_text("Written while it was hidden.")).to_be_visible()

        async with written_run(console.platform.services, thread="other") as other:
            await page.evaluate(
                f"history.pushState(null, '', '/console/runs/{other.id}'); dispatchEvent(new PopStateEvent('popstate'))"
            )
            await expect(page.get_by_role("heading", name=other.id[-8:])).to_be_visible()
            await until_streams(console, 1)
            await page.get_by_role("link", name="Ask", exact=True).click()
            await until_streams(console, 0)


async def test_cut_connection_is_opened_again_after_the_last_event_and_no_text_is_lost_or_repeated(
    console: Console,
) -> None:
    proxy = TcpProxy(console.platform.port)
    await proxy.start()
    near = Console(replace(console.platform, url=f"http://127.0.0.1:{proxy.port}"), console.browser)
    asked: list[Request] = []
    try:
        async with opened_run(near, "cut") as (run, page):
            page.on("request", lambda one: asked.append(one) if one.url.endswith("/events") else None)
            words = [f"word{number} " for number in range(300)]
            for begin in range(0, 300, 100):
                await run.say(*words[begin : begin + 100])
                await expect(page.get_by_text(f"word{begin + 99} ")).to_be_visible()
                proxy.cut_all()
            await run.say("last")
            draft = page.get_by_text("word0 word1")
            await expect(draft).to_have_text(re.compile("last$"))
            assert await draft.text_content() == "".join(words) + "last"
            resumed = [one.headers.get("last-event-id") for one in asked]
            assert len([one for one in resumed if one]) >= 3, resumed
            await run.end()
            await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    finally:
        await proxy.stop()
    assert [one for one in near.complaints if "net::ERR_" not in one] == []


async def test_document_is_fetched_at_most_twice_a_second_while_200_events_a_second_come(console: Console) -> None:
    fetched: list[float] = []
    async with opened_run(console, "burst") as (run, page):
        await until_streams(console, 1)
        path = f"/v1/runs/{run.id}"
        page.on("request", lambda one: fetched.append(monotonic()) if _path(one.url) == path else None)
        begun, seconds = monotonic(), 4
        for number in range(200 * seconds):
            run.writer.emit(Warn(code="burst", message=f"Event {number}."))
            await asyncio.sleep(max(0, begun + number / 200 - monotonic()))
        await expect(page.get_by_text(f"Event {200 * seconds - 1}.")).to_be_visible(timeout=10_000)
        passed = monotonic() - begun
        await assert_answers_a_click(page)

    assert 2 <= len(fetched) <= _REFETCHES * passed + 1, (len(fetched), passed)


def _path(url: str) -> str:
    return urlsplit(url).path


BUTTONS: Final = {
    "registry": {"Reload", "Show what would change", "Roll back"},
    "teams": {"Build a team"},
    "skills": {"Retire", "Delete"},
    "access": {"Revoke", "New key", "Create a key", "Switch off", "Switch on"},
}
MAY: Final = {
    Scope.RUN: set[str](),
    Scope.SERVICE: set[str](),
    Scope.TEAMS: {"teams"},
    Scope.SERVERS: set[str](),
    Scope.ADMIN: {"registry", "teams", "skills", "access"},
}


@pytest.mark.parametrize("scope", MAY)
async def test_what_a_key_may_not_do_is_not_a_button(console: Console, scope: Scope) -> None:
    page = await console.entered(scope)
    for path, names in BUTTONS.items():
        await page.goto(console.address(path))
        await loaded(page)
        shown = {await button.inner_text() for button in await page.get_by_role("button").all()}
        assert path in MAY[scope] or not shown & names, (path, shown)
    await page.goto(console.address("ask"))
    await loaded(page)
    assert await page.get_by_role("button", name="Ask").count() == (scope is Scope.RUN), scope


async def test_registry_of_300_servers_stays_usable_and_its_filter_finds_one(console: Console) -> None:
    columns = "config, config_hash, source, state, description, tools, error, remedy, tool_settings, listed_at"
    add = f"""
        INSERT INTO servers (tenant, name, {columns}) SELECT tenant, 'many' || n, {columns}
        FROM servers, generate_series(1, 300) n WHERE name = 'effects'"""  # noqa: S608 - ours
    engine = console.platform.services.storage.engine
    async with engine.begin() as connection:
        await connection.execute(text(add))
    try:
        page = await console.entered()
        begun = monotonic()
        await page.get_by_role("link", name="Registry").click()
        await expect(page.get_by_role("link", name="many300", exact=True)).to_be_visible()
        shown = monotonic()
        await page.get_by_label("Part of a name").first.fill("many29")
        await expect(page.get_by_role("link", name="many300", exact=True)).to_have_count(0)
        filtered = monotonic()
        await expect(page.get_by_role("link", name=re.compile("^many"))).to_have_count(11)
        assert "many29" in page.url
        await page.reload()
        await expect(page.get_by_role("link", name=re.compile("^many"))).to_have_count(11)
        await assert_answers_a_click(page)
        assert max(shown - begun, filtered - shown) < _NEAR
    finally:
        async with engine.begin() as connection:
            await connection.execute(text("DELETE FROM servers WHERE name LIKE 'many%'"))


async def entered_at(console: Console, runs: PlannedRuns) -> Page:
    """Return a page of a platform of processes."""
    headers = admin_headers(runs.workspace.folder / "data")
    page = await console.open_page()
    async with console.platform.client.post(f"{runs.api.url}/v1/console/codes", headers=headers) as response:
        code = (await response.json())["code"]
    await page.goto(f"{runs.api.url}/console/#code={code}")
    await page.get_by_role("heading", name="Inbox").wait_for()
    return page


async def test_page_goes_on_without_a_reload_when_the_worker_of_its_run_is_killed(
    console: Console, open_folder: Path, database_url: str
) -> None:
    async with planned_runs(open_folder, database_url, workers=1) as runs:
        near = replace(console, platform=replace(console.platform, url=runs.api.url), complaints=[])
        run_id, call = await runs.begin("killed", Call("read_it", "before")), first_call("killed")
        page = await entered_at(near, runs)
        await page.goto(f"{runs.api.url}/console/runs/{run_id}")
        await runs.effects.until("arrived", call)
        await page.evaluate("window.same = true")

        runs.workers[0].process.send_signal(signal.SIGKILL)
        runs.effects.open(f"{call}.gate")
        await runs.start(("worker",))

        await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible(timeout=60_000)
        assert await page.evaluate("window.same")
        assert near.complaints == []
