"""The lines of `starling run explain`."""

from typing import Any

import pytest

from starling.app.cli.run.explain import explanation_parts, headline, no_cause, where_to_look


def explanation(status: str = "succeeded", *pruned: str, **parts: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: []
        for name in ("causes", "look_at", "failures", "verdicts", "passed_over", "retried", "degraded", "waited")
    }
    missing = [{"what": what, "text": f"No {what}."} for what in pruned]
    texts: dict[str, Any] = {
        "asked": {"text": "Asked."},
        "planned": {"text": "Planned.", "versions": []},
        "cost": {"text": "Cheap."},
    }
    return {**told, **texts, "status": status, "pruned": missing, **parts}


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (explanation(), "Cause: none. The run answered everything."),
        (explanation("succeeded", "skills"), "Cause: none. The run answered everything."),
        (explanation("waiting"), "Cause: none so far."),
        (explanation("succeeded", "events", "steps"), "Cause: none in the rows that are still kept."),
        (explanation("succeeded", "not_read"), "Cause: none in the rows that are still kept."),
    ],
)
def test_run_without_a_cause_says_how_far_that_is_known(document: dict[str, Any], line: str) -> None:
    assert no_cause(document) == line


def test_parts_have_their_references_and_long_ones_end_with_how_many_more_there_are() -> None:
    failed = [{"text": f"Failure {n}.", "refs": [{"kind": "event", "id": str(n)}]} for n in range(1, 23)]

    found = dict(explanation_parts(explanation("failed", failures=failed)))

    assert list(found) == ["Asked", "Planned", "Failed", "Cost"]
    assert found["Failed"][0] == "Failure 1. [event 1]"
    assert found["Failed"][20:] == ["… and 2 more (`--json` has them all)"]


def test_first_line_says_how_much_of_the_request_was_not_answered() -> None:
    missing = [{"text": "Nobody knew."}] * 2

    lines = [headline({**explanation(degraded=parts), "run_id": "a1"}) for parts in ([], missing[:1], missing)]

    assert lines == [
        "Run a1: succeeded",
        "Run a1: succeeded, 1 part not answered",
        "Run a1: succeeded, 2 parts not answered",
    ]


def test_cause_comes_with_the_commands_that_show_its_rows_as_far_as_they_are_kept() -> None:
    refs = [{"kind": kind, "id": number} for kind, number in (("call", "t1.0.0"), ("event", "9"), ("event", "6"))]
    cause = {"code": "degraded_server", "refs": refs}

    kept, pruned = (where_to_look(explanation("failed", *what, cause=cause), "a1") for what in ((), ("events",)))

    now = "`starling server list` says how each server is now."
    rows = "`starling run tail a1 --json --after 5` begins with event 6."
    assert kept == f"Look at it with `starling run show a1 --tree`; {rows} {now}"
    assert pruned == f"Look at it with `starling run show a1`. {now}"


def test_what_a_run_still_waits_for_comes_first() -> None:
    waits: list[dict[str, Any]] = [{"text": f"{state}.", "refs": [], "state": state} for state in ("resolved", "open")]

    found = dict(explanation_parts(explanation("waiting", waited=waits)))

    assert list(found) == ["Waits for", "Asked", "Planned", "Waited for", "Cost"]
    assert (found["Waits for"], found["Waited for"]) == (["open."], ["resolved."])
