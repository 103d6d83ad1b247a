"""Back-off between starts of a server that fails each time."""

import pytest

from mcp_gateway.sessions.backoff import RestartBackoff
from starling.core.errors import ServerUnavailableError

KEY = ("shop", "hash")
ERROR = ServerUnavailableError("shop", "it ended with exit code 3.", "Read its log.")


def waits_after(backoff: RestartBackoff, now: list[float]) -> float:
    """Return for how many whole seconds starts are refused from now on."""
    begun = now[0]
    while True:
        try:
            backoff.check(KEY)
        except ServerUnavailableError:
            now[0] += 1
        else:
            return now[0] - begun


def test_starts_that_fail_in_a_row_wait_longer_each_time_up_to_a_bound() -> None:
    now = [0.0]
    backoff = RestartBackoff(lambda: now[0])
    waits: list[float] = []
    for _ in range(10):
        backoff.failed(KEY, ERROR)
        waits.append(waits_after(backoff, now))

    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_server_that_was_open_again_is_started_at_once_after_its_next_failure() -> None:
    backoff = RestartBackoff(lambda: 0.0)
    for _ in range(6):
        backoff.failed(KEY, ERROR)
    backoff.opened(KEY)
    backoff.failed(KEY, ERROR)

    backoff.check(KEY)


def test_refusal_names_the_last_reason_and_the_next_start() -> None:
    backoff = RestartBackoff(lambda: 0.0)
    for _ in range(4):
        backoff.failed(KEY, ERROR)

    with pytest.raises(ServerUnavailableError, match=r"exit code 3.*4 times in a row.*in 1 s"):
        backoff.check(KEY)
