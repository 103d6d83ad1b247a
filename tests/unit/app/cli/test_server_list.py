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
}
VISIBLE = "It can read the platform's token and password: `starling doctor` says why."


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Tells the time."),
        ({"isolation": None}, "Tells the time."),
        ({"isolation": "mount_namespace"}, "Tells the time."),
        ({"isolation": "none"}, VISIBLE),
        ({"isolation": "none", "error": "It is gone.", "remedy": "Start it."}, f"It is gone. Start it. {VISIBLE}"),
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
