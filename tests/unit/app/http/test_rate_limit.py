"""The rate limit of keys."""

from datetime import UTC, datetime

import pytest

from starling.app.http.rate_limit import RateLimit
from starling.core.errors import RateLimitedError


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


def test_a_minutes_requests_may_come_at_once() -> None:
    rate = RateLimit(3, Hands())

    for _ in range(3):
        rate.take("a")

    with pytest.raises(RateLimitedError) as refused:
        rate.take("a")
    assert refused.value.retry_after == pytest.approx(20)


def test_one_key_doesnt_use_up_anothers_requests() -> None:
    rate = RateLimit(1, Hands())

    rate.take("a")

    rate.take("b")


def test_after_the_time_that_was_told_the_next_request_is_let_in() -> None:
    clock = Hands()
    rate = RateLimit(2, clock)
    rate.take("a")
    rate.take("a")
    with pytest.raises(RateLimitedError) as refused:
        rate.take("a")

    clock.seconds += refused.value.retry_after

    rate.take("a")
    with pytest.raises(RateLimitedError):
        rate.take("a")


def test_a_key_that_rested_for_long_has_no_more_than_a_minutes_requests() -> None:
    clock = Hands()
    rate = RateLimit(2, clock)
    rate.take("a")

    clock.seconds += 10_000

    rate.take("a")
    rate.take("a")
    with pytest.raises(RateLimitedError):
        rate.take("a")
