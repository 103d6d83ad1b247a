"""A team from a wish: built, proved, activated and used in pages alone."""

import json
from typing import Final

import pytest
from playwright.async_api import Page, expect

from tests.console.conftest import Console, loaded
from tests.support.model_script import Answer
from tests.support.platform import ScriptedModel, calls, decision, task

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESIGN: Final = {
    "name": "letters",
    "purpose": "Reads letters and charges for them.",
    "members": [
        {
            "name": "reader",
            "role": "Reader",
            "goal": "Read and charge.",
            "server": "effects",
            "tools": ["effects.read_it", "effects.charge"],
            "parts": [1],
        }
    ],
    "examples": [
        {
            "request": "Read the first letter and charge for it.",
            "must_call": ["effects.read_it", "effects.charge"],
            "judged": ["It says who wrote it."],
        },
        {"request": "Read the second letter.", "must_call": ["effects.read_it"], "contains": ["fine"]},
    ],
}
WISH: Final = "A team that reads letters and charges for them"
BOTH: Final = calls(("read_it", {"what": "a"}), ("charge", {"what": "a"}))


def script_build(script: ScriptedModel) -> None:
    """Have the team designed and tried; the judge of its first case answers once its gate is open."""
    script.designer(Answer(json.dumps(DESIGN)))
    script.judge(Answer(json.dumps({"met": ["it_says_who_wrote_it"], "not_met": [], "reason": ""}), hold="judge"))
    script_work(script, BOTH)


def script_work(script: ScriptedModel, *answers: Answer) -> None:
    """Have the team's one member answer so."""
    script.run(decision(task("t1", "reader")), t1=answers, qa=Answer("All is fine [1]."))


@pytest.mark.console
async def test_team_from_a_wish_is_seen_made_and_proved_then_approved_and_used_in_the_page_alone(
    console: Console,
) -> None:
    platform = console.platform
    script_build(platform.script)
    page = await console.entered()
    await page.evaluate("window.same = true")

    await start_build(page)
    await expect(page.get_by_text("Design letters")).to_be_visible()
    await expect(page.get_by_text("running", exact=True).first).to_be_visible()
    await expect(page.get_by_text("Case example_1")).to_have_count(0)
    platform.model.release("judge")
    await expect(page.get_by_text("Case example_1 passed")).to_be_visible()
    await expect(page.get_by_text("Case example_2 passed")).to_be_visible()
    assert set(platform.effects.done()) == {"read_it a"}  # trials read, and change nothing

    asked = page.get_by_role("article")
    await expect(asked).to_contain_text("effects.charge, effects.read_it")
    await expect(asked).to_contain_text("23 h 59 min")
    await asked.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()

    await page.get_by_role("navigation").get_by_role("link", name="Teams").click()
    await page.get_by_role("main").get_by_role("link", name="letters").click()
    await expect(page.get_by_text("active", exact=True).first).to_be_visible()
    await assert_proof_is_a_table(page)

    platform.script.forget()
    script_work(platform.script, BOTH, Answer("It is read."))
    await page.get_by_role("main").get_by_role("link", name="Ask").click()
    await page.get_by_label("Request").fill("Read the letter, please.")
    await page.get_by_role("button", name="Ask").click()
    await page.wait_for_url("**/console/runs/*")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    await expect(page.get_by_role("img", name="The supervisor, and around it")).to_contain_text("letters")
    assert platform.effects.done().count("charge a") == 1
    assert await page.evaluate("window.same"), "the page was loaded again"


async def start_build(page: Page) -> None:
    await page.get_by_role("navigation").get_by_role("link", name="Teams").click()
    await page.get_by_label("What should it do?").fill(WISH)
    await page.get_by_role("button", name="Build a team").click()
    await page.wait_for_url("**/console/runs/*")


async def assert_proof_is_a_table(page: Page) -> None:
    proof = page.get_by_role("region", name="Proof").get_by_role("row")
    await expect(proof).to_have_count(3)
    assert await proof.first.get_by_role("columnheader").all_inner_texts() == [
        "Case",
        "Result",
        "Criteria",
        "Calls",
        "Answer",
    ]
    first = proof.filter(has_text="example_1")
    for words in ("✓ It says who wrote it.", "✓ It calls effects.charge", "succeeded, live", "succeeded, simulated"):
        await expect(first).to_contain_text(words)


@pytest.mark.console
async def test_case_that_a_judge_finds_wanting_is_shown_with_the_reason_and_nothing_is_activated(
    console: Console,
) -> None:
    script = console.platform.script
    design = DESIGN | {"name": "failing", "purpose": "Fails."}
    script.designer(Answer(json.dumps(design)))
    script.judge(Answer(json.dumps({"met": [], "not_met": ["it_says_who_wrote_it"], "reason": "It names nobody."})))
    script_work(script, BOTH)
    page = await console.entered()

    await start_build(page)

    await expect(page.get_by_text("failed", exact=True).first).to_be_visible()
    await page.goto(console.address("teams/failing"))
    await loaded(page)
    wanting = page.get_by_role("region", name="Proof").get_by_role("row").filter(has_text="example_1")
    await expect(wanting).to_contain_text("It names nobody.")
    await expect(wanting).to_contain_text("✗ It says who wrote it.")
    await expect(page.get_by_text("active", exact=True)).to_have_count(0)
