"""Whole runs with long results: whoever reads one is shown the line that decides; the answer says what wasn't read."""

import html
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import SERVERS, python
from tests.support.long_results import long_result
from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel, calls, decision, task, verdict

NAME, APPROVED = "ORD-734921", verdict("APPROVED")
REQUEST, FIND = f"What happened to {NAME}?", f"Find the state of {NAME}."
REVIEW, QA, SUPERVISOR = "You review the result of a task", "You write the final answer", "You supervise agents"


@dataclass(frozen=True, slots=True)
class Quoter:
    """A platform with an agent that quotes long texts."""

    platform: Platform
    script: ScriptedModel
    folder: Path

    def plan(self, *lengths: int, then: tuple[dict[str, Any], ...] = ()) -> list[tuple[str, str]]:
        """Script a task for a text of each length, and `then` others; return the texts with their deciding lines."""
        results = [long_result(Random(chars), "log", "order", chars, NAME) for chars in lengths]
        for number, (text, _) in enumerate(results):
            (self.folder / f"quote{number}").write_text(text, "utf-8")
            self.script.agent(f"t{number}", calls(("quote", {"lines": number})))
        tasks = [task(f"t{number}", "mcp_agent_poet", FIND) for number in range(len(lengths))]
        self.script.supervisor(decision(*tasks, *then), decision())
        self.script.qa(Answer("It was delayed [1]."))
        return results

    def shown(self, contains: str, number: int) -> str:
        return html.unescape(self.platform.requests_containing(contains)[number]["messages"][-1]["content"])


@pytest.fixture
async def quoter(opened: Open, script: ScriptedModel, tmp_path: Path) -> AsyncGenerator[Quoter]:
    config = python(SERVERS / "verbose.py", str(tmp_path / "said"), effect="read")
    servers = {"poet": config.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
    async with opened(servers=servers) as platform:
        yield Quoter(platform, script, tmp_path)


@pytest.mark.parametrize("lengths", [[9_000], [12_000] * 2 + [1_000], [17_000] * 3 + [1_000], [180_000]])
async def test_answer_rests_on_all_deciding_lines_and_says_if_it_is_partial(quoter: Quoter, lengths: list[int]) -> None:
    results, whole = quoter.plan(*lengths), sum(lengths) < 32_000
    quoter.script.reviewer(APPROVED)

    stream = await quoter.platform.ask(REQUEST)

    prompt, lines = quoter.shown(QA, -1), [line for text, _ in results for line in text.splitlines()]
    seen = [line for line in lines if line in prompt]
    assert [deciding for _, deciding in results if deciding not in prompt] == []
    assert sum({line: len(line) for line in seen}.values()) <= 32_000
    assert (seen == lines) == whole
    assert set(results[-1][0].splitlines()) <= set(seen) or lengths[-1] > 1_000
    assert any(line.startswith("Read in part: ") for line in stream.reply.splitlines()) == (not whole), stream.reply


@pytest.mark.parametrize(
    ("reader", "number", "budget"), [(REVIEW, 0, 24_000), (SUPERVISOR, -1, 6_000), ('<task id="t9">', 0, 12_000)]
)
async def test_every_reader_is_shown_the_deciding_line(quoter: Quoter, reader: str, number: int, budget: int) -> None:
    [(text, deciding)] = quoter.plan(17_000, then=(task("t9", "generalist", FIND, ["t0"]),))
    quoter.script.agent("t9", Answer("It is unknown."))
    quoter.script.reviewer(APPROVED, of="t0")
    quoter.script.reviewer(verdict("REJECTED", "It is known."), of="t9")

    await quoter.platform.ask(REQUEST)

    prompt = quoter.shown(reader, number)
    assert deciding in prompt
    assert sum(prompt.count(line) * len(line) for line in text.splitlines()) <= budget
