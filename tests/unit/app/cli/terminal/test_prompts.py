"""What a person types at a prompt, and the answer that it makes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from starling.app.cli.terminal.prompts import FixedAnswers, Prompts

_OPTIONS = {"properties": {"answer": {"type": "string", "examples": ["The first disk.", "The second disk."]}}}
_CALL = {"name": "shop.order", "args": {"item": "tea"}}
_DATA: dict[str, Any] = {"call": _CALL, "responseSchema": _OPTIONS}
_WITHDRAWN: dict[str, Any] = {"status": "cancelled", "payload": {}}


def typed(lines: Sequence[str]) -> Callable[[str], str]:
    """Return a reader of these lines; after them the person presses Ctrl-D."""
    left = list(lines)

    def read(_: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


def resolved(**payload: Any) -> dict[str, Any]:
    return {"status": "resolved", "payload": payload}


@pytest.mark.parametrize(
    ("kind", "lines", "answer"),
    [
        ("approval_required", ["y"], resolved(approved=True)),
        ("approval_required", ["Yes"], resolved(approved=True)),
        ("approval_required", ["n"], resolved(approved=False)),
        ("approval_required", [""], resolved(approved=False)),
        ("approval_required", ["show", "what?", "y"], resolved(approved=True)),
        ("approval_required", [], None),
        ("clarification", ["2"], resolved(answer="The second disk.")),
        ("clarification", ["3"], resolved(answer="3")),
        ("clarification", ["the third"], resolved(answer="the third")),
        ("clarification", [""], _WITHDRAWN),
        ("budget_required", ["10,000"], resolved(tokens=10_000)),
        ("budget_required", ["lots", "0", "5"], resolved(tokens=5)),
        ("budget_required", [""], _WITHDRAWN),
        ("in_doubt", ["not_done"], resolved(resolution="not_done")),
        ("in_doubt", ["maybe", "done"], resolved(resolution="done")),
        ("in_doubt", [""], None),
    ],
)
def test_typed_lines_make_an_answer(kind: str, lines: Sequence[str], answer: dict[str, Any] | None) -> None:
    assert Prompts(typed(lines)).answer(kind, _DATA) == answer


def test_show_prints_the_whole_call(capsys: pytest.CaptureFixture[str]) -> None:
    Prompts(typed(["show"])).answer("approval_required", _DATA)

    assert '"item": "tea"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("approve", "kind", "answer"),
    [
        (True, "approval_required", resolved(approved=True)),
        (False, "approval_required", resolved(approved=False)),
        (True, "clarification", None),
        (False, "clarification", _WITHDRAWN),
        (True, "budget_required", None),
        (False, "budget_required", _WITHDRAWN),
        (True, "in_doubt", None),
        (False, "in_doubt", None),
    ],
)
def test_fixed_answers_decide_on_calls_only(kind: str, answer: dict[str, Any] | None, *, approve: bool) -> None:
    assert FixedAnswers(approve).answer(kind, _DATA) == answer
