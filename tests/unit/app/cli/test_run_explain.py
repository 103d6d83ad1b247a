"""The lines of `starling run explain`."""

from typing import Any

import pytest

from starling.app.cli.run.explain import explanation_parts, no_cause


def explanation(status: str = "succeeded", *pruned: str, **parts: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: [] for name in ("causes", "failures", "verdicts", "passed_over", "retried", "degraded", "waited")
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
        (explanation(), "Cause: none. Nothing went wrong that was not made up for."),
        (explanation("succeeded", "skills"), "Cause: none. Nothing went wrong that was not made up for."),
        (explanation("waiting"), "Cause: none so far."),
        (explanation("succeeded", "events", "steps"), "Cause: none that can still be told."),
        (explanation("succeeded", "not_read"), "Cause: none that can still be told."),
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
