"""What `starling server list` says of a server."""

from typing import Any

import pytest

from starling.app.cli.server.queries import row_of
from starling.app.cli.terminal.formats import moment

SERVER: dict[str, Any] = {
    "name": "time",
    "state": "ready",
    "tools": 2,
    "source": "file",
    "error": "",
    "remedy": "",
    "description": "Tells the time.",
    "quarantined": {},
    "isolation": None,
    "breakers": [],
}
VISIBLE = "It can read the platform's token and password and write its files: `starling doctor` says why."
ENDS = "It can end other servers{} by signals: `starling doctor` says why."
READS = "It can read other servers' variables, answer their calls, and end them{}: `starling doctor` says why."


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Tells the time."),
        ({"isolation": {"files": "mount_namespace", "processes": "apart"}}, "Tells the time."),
        (
            {"isolation": {"files": "none", "processes": "apart"}, "error": "It is gone.", "remedy": "Start it."},
            f"It is gone. Start it. {VISIBLE}",
        ),
        ({"isolation": {"files": "own_user", "processes": "signals"}}, ENDS.format("")),
        ({"isolation": {"files": "mount_namespace", "processes": "none"}}, READS.format(" and the platform")),
    ],
)
def test_server_without_isolation_is_named_in_the_list(more: dict[str, Any], said: str) -> None:
    assert row_of(SERVER | more) == ("time", "ready", "2", "file", said)


def test_process_in_which_calls_fail_at_once_is_named_with_the_reason_and_the_next_trial() -> None:
    moments = {"since": "2026-11-20T11:12:01+00:00", "retry_at": "2026-11-20T11:12:05+00:00"}
    breaker = {"process": "worker-1:4711:9f3c2a", "failures": 6, "reason": "it ended with exit code 3.", **moments}

    *_, said = row_of(SERVER | {"breakers": [breaker]})

    assert said == (
        f"In worker-1:4711:9f3c2a calls fail at once since {moment(moments['since'])}, the next trial is at"
        f" {moment(moments['retry_at'])} or later: it ended with exit code 3."
    )
