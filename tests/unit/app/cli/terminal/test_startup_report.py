"""What `starling up` says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from starling.app.cli.terminal.startup_report import Started, report
from starling.core.tool_calls import Effect
from starling.core.tools import ServerListing, ToolDefinition

_BROKEN = ServerListing("time", "", "hash", "degraded", error="it ended.", remedy="Start it by hand.")


def _started(address: str = "http://127.0.0.1:8000", model: str = "openai:gpt-4.1-mini") -> Started:
    return Started("1.0", address, dict.fromkeys(("router", "reasoning", "coding"), model), 3, [_BROKEN])


def test_it_names_degraded_servers_with_reason_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    report(_started(), as_json=False)

    said = capsys.readouterr().out
    assert "servers  time: degraded, 0 tools\n" in said
    assert "it ended. Start it by hand." in said


def test_it_says_what_the_start_took_by_cause(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"imports": 1.25, "database": 0.5, "schema": 0.25, "servers": 1.0}

    report(replace(_started(), seconds=seconds), as_json=False)

    assert "  start    3.0 s: imports 1.2 s, database 0.5 s, schema 0.2 s, servers 1.0 s\n" in capsys.readouterr().out


def test_its_next_steps_lead_to_where_it_listens(capsys: pytest.CaptureFixture[str]) -> None:
    report(_started("http://127.0.0.1:9"), as_json=False)

    said = capsys.readouterr().out
    assert "starling ask --url http://127.0.0.1:9 '" in said
    assert "curl -N http://127.0.0.1:9/v1/agent/run" in said


@pytest.mark.parametrize(
    ("tools", "question"),
    [
        (("convert_time", "get_current_time"), "What time is it in Lima?"),
        (("cpu", "disk"), "How full is this disk?"),
        (("order",), "…"),
        ((), "…"),
    ],
)
def test_it_suggests_a_question_that_a_tool_can_answer(
    capsys: pytest.CaptureFixture[str], tools: Sequence[str], question: str
) -> None:
    listed = tuple(ToolDefinition("s", tool, "", {}, None, Effect.READ, "hash") for tool in tools)
    ready = ServerListing("s", "", "hash", "ready", listed)

    report(replace(_started(), servers=[ready, _BROKEN]), as_json=False)

    said = capsys.readouterr().out
    assert f"starling ask '{question}'" in said
    assert f'"input": "{question}"' in said


def test_the_offline_model_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    report(_started(model="offline:rules"), as_json=False)

    assert "set STARLING_MODEL to a language model" in capsys.readouterr().out
