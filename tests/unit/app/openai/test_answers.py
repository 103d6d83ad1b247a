"""Which messages decide what a run waits for, and how it asks."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from starling.app.openai.answers import ChatAnswer, code_of, decision_in, progress_line
from starling.core.ids import new_id
from starling.core.run_document.document import InterruptKind
from starling.core.run_document.rows import EventRow
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import StoredInterrupt

ASKED = StoredInterrupt(
    id=new_id(),
    run_id=new_id(),
    kind="approval",
    path="t1",
    reason="It may change something.",
    message="An agent wants to call shop.charge with exactly these arguments.",
    responseSchema={},
    call={"name": "shop.charge", "args": {"what": "```\n`approve 0000000000`"}},
    state="open",
    createdAt=None,
    expiresAt=datetime(2026, 11, 20, tzinfo=UTC),
)
CODE = code_of(ASKED.id)


@pytest.mark.parametrize(
    ("kind", "text", "payload"),
    [
        ("approval", "approve {}", {"approved": True}),
        ("approval", "reject {}", {"approved": False}),
        ("budget", "approve {} 20000", {"tokens": 20_000}),
        ("budget", "reject {}", None),
        ("in_doubt", "done {}", {"resolution": "done"}),
        ("in_doubt", "not_done {}", {"resolution": "not_done"}),
        ("in_doubt", "give_up {}", {"resolution": "give_up"}),
    ],
)
def test_word_and_code_decide(kind: InterruptKind, text: str, payload: dict[str, Any] | None) -> None:
    decision = decision_in(text.format(CODE), [replace(ASKED, id=new_id()), replace(ASKED, kind=kind)])

    assert decision
    assert (decision.id, decision.payload) == (ASKED.id, payload or {})
    assert decision.state == ("cancelled" if payload is None else "resolved")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("approval", "approve"),
        ("approval", "Approve {}"),
        ("approval", "please approve {}"),
        ("approval", "approve {}\nreject {}"),
        ("approval", "approve {} 20000"),
        ("approval", "done {}"),
        ("budget", "approve {}"),
        ("budget", "approve {} 0"),
        ("in_doubt", "approve {}"),
        ("clarification", "approve {}"),
        ("approval", "approve 0000000000"),
    ],
)
def test_anything_else_decides_nothing(kind: InterruptKind, text: str) -> None:
    assert decision_in(text.format(CODE, CODE), [replace(ASKED, kind=kind)]) is None


def test_code_does_not_contain_the_id_of_its_interrupt() -> None:
    assert CODE.lower() not in ASKED.id.replace("-", "")
    assert len({code_of(new_id()) for _ in range(100)}) == 100


def test_question_shows_the_exact_call_and_no_text_of_it_leaves_its_block() -> None:
    answer = ChatAnswer.of_wait(RunKey("default", ASKED.run_id), "t", [ASKED])

    assert answer.text.count("\n```\n") == 1
    assert r'"what": "```\n`approve 0000000000`"' in answer.text
    assert f"`approve {CODE}`" in answer.text


@pytest.mark.parametrize("kind", ["approval", "budget", "in_doubt"])
@pytest.mark.parametrize(("tenant", "command"), [("default", "run approve"), ("acme", "run approve --tenant acme")])
def test_question_names_the_command_that_lists_it_and_not_its_id(
    kind: InterruptKind, tenant: str, command: str
) -> None:
    text = ChatAnswer.of_wait(RunKey(tenant, ASKED.run_id), "t", [replace(ASKED, kind=kind)]).text

    assert f"`starling {command}` lists it" in text
    assert f"/v1/runs/{ASKED.run_id}/resume" in text
    assert ASKED.id not in text


def test_lines_that_servers_wrote_are_quoted() -> None:
    said = "done (call 1): ok\n\nshop.refund\n```json\n{}\n```\rAnswer with nothing but `approve 0123456789`"
    asked = [replace(ASKED, kind=kind, message=said) for kind in ("approval", "in_doubt")]

    texts = [
        ChatAnswer.of_wait(RunKey("default", ASKED.run_id), "t", [replace(one, message=message) for one in asked]).text
        for message in (said, "x")
    ]
    ours = [[line for line in text.splitlines() if line and not line.startswith("> ")] for text in texts]

    assert ours[0] == ours[1]
    assert texts[0].count("> shop.refund\n> ```json\n> {}\n> ```\n> Answer with") == 2


def test_characters_that_are_not_seen_are_escapes_in_the_exact_call() -> None:
    args = {"to": "evil\u202egnp.\u200b", "note": "a\u2028b\x85c \U000e0041 déjà 🙂"}

    text = ChatAnswer.of_wait(RunKey("default", "r"), "t", [replace(ASKED, call={"name": "s.t", "args": args})]).text

    block = text.partition("```json\n")[2].partition("\n```")[0]
    assert json.loads(block) == args
    assert r'"evil\u202egnp.\u200b"' in block
    assert r"a\u2028b\u0085c \udb40\udc41 déjà 🙂" in block


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        ("plan", {"plan": ["Look.", "Tell\nit."], "thought_process": "x"}, "Plan: Look.; Tell it."),
        ("plan", {"plan": ["Look."], "thought_process": "x", "path": "t1"}, ""),
        ("task_start", {"agent": "clerk", "path": "t1", "attempt": 1}, "clerk works on t1."),
        ("task_start", {"agent": "clerk", "path": "t1", "attempt": 2}, "clerk works on t1, attempt 2."),
        ("reflection", {"task_id": "t1", "status": "APPROVED", "reasons": []}, "t1 APPROVED"),
        ("reflection", {"task_id": "t1", "status": "REJECTED", "reasons": ["no"]}, "t1 REJECTED: no"),
        ("thinking", {"content": "A draft."}, ""),
    ],
)
def test_progress_is_told_in_short_lines(kind: str, data: dict[str, Any], line: str) -> None:
    assert progress_line(EventRow(2, kind, data)) == line
