"""A breaker per server: refusals after failures in a row, and the one call that tries."""

import pytest

from mcp_gateway.sessions.breakers import ServerBreakers
from starling.core.errors import ServerUnavailableError

KEY, OTHER = ("shop", "hash"), ("shop", "new hash")
ERROR = ServerUnavailableError("shop", "it ended with exit code 3.", "Read its log.")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.changes: list[str] = []
        self.breakers = ServerBreakers(lambda: self.now)
        self.breakers.on_change = self.changes.append

    def fail(self, times: int = 1, *, is_costly: bool = False) -> None:
        for _ in range(times):
            self.breakers.failed(KEY, ERROR, is_costly=is_costly)

    def seconds_refused(self) -> float:
        """Return for how many whole seconds attempts are refused from now on."""
        begun = self.now
        while self.breakers.refuses(KEY):
            self.now += 1
        return self.now - begun


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_failures_in_a_row_refuse_calls_longer_each_time_up_to_a_bound(clock: Clock) -> None:
    waits: list[float] = []
    for _ in range(10):
        clock.fail()
        waits.append(clock.seconds_refused())

    assert waits == [0, 0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_failures_of_calls_that_began_before_the_breaker_opened_count_for_nothing(clock: Clock) -> None:
    clock.fail(20)

    assert clock.seconds_refused() == 1


def test_answer_closes_the_breaker(clock: Clock) -> None:
    clock.fail(4)
    clock.now = 1
    with clock.breakers.attempt(KEY):
        clock.breakers.answered(KEY)
    clock.fail(3)

    clock.breakers.check(KEY)


def test_calls_wait_after_the_first_costly_failure(clock: Clock) -> None:
    clock.fail(is_costly=True)

    assert clock.seconds_refused() == 1


def test_one_attempt_is_let_through_and_others_are_refused_until_it_has_ended(clock: Clock) -> None:
    clock.fail(4)
    clock.now = 1

    with clock.breakers.attempt(KEY), pytest.raises(ServerUnavailableError, match="is being tried again"):
        clock.breakers.check(KEY)
    clock.breakers.check(KEY)  # the trial ended without an answer and without a failure


def test_refusal_names_the_last_reason_and_the_time_of_the_next_trial(clock: Clock) -> None:
    clock.fail(4)

    with (
        pytest.raises(ServerUnavailableError, match=r"exit code 3.*4 times in a row.*in 1 s") as refused,
        clock.breakers.attempt(KEY),
    ):
        pass
    assert refused.value.remedy == "Read its log."


def test_changed_configuration_has_a_breaker_of_its_own(clock: Clock) -> None:
    clock.fail(4)
    clock.breakers.check(OTHER)

    clock.breakers.keep_only({"shop": "new hash"})

    assert clock.breakers.state_of("shop") is None


def test_changes_are_reported_and_nothing_else(clock: Clock) -> None:
    clock.fail(3)
    clock.breakers.answered(KEY)
    quiet = list(clock.changes)
    clock.fail(5)  # opens
    clock.now = 1
    clock.fail()  # waits anew
    clock.breakers.answered(KEY)  # closes

    assert (quiet, clock.changes) == ([], ["shop"] * 3)


def test_log_has_a_line_when_a_server_fails_again_and_again_one_a_minute_and_one_when_it_works(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock.fail(3)
    quiet = list(caplog.messages)
    for _ in range(8):
        clock.fail()
        clock.seconds_refused()
    clock.breakers.answered(KEY)
    clock.breakers.answered(KEY)

    reason, later = "it ended with exit code 3. It failed", "for 61 s; failures: 7; the last one:"
    assert quiet == []
    assert caplog.messages == [
        f"MCP server shop fails again and again: {reason} 4 times in a row and is tried again in 1 s.",
        f"MCP server shop fails again and again, {later} {reason} 10 times in a row and is tried again in 30 s.",
        "MCP server shop works again, after 121 s; failures: 8",
    ]


def test_each_failure_that_counts_is_measured_by_server() -> None:
    measured: list[str] = []
    breakers = ServerBreakers(lambda: 0.0, measured.append)

    for _ in range(6):
        breakers.failed(KEY, ERROR)

    assert measured == ["shop"] * 4  # the others began before the breaker opened
