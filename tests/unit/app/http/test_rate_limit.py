"""The rate limit of keys."""

import pytest

from starling.app.http.rate_limit import RateLimit, WrongKeyLimit, address_of
from starling.core.errors import RateLimitedError, TooManyWrongKeysError
from tests.support.set_clock import SetClock


def test_a_minutes_requests_may_come_at_once() -> None:
    rate = RateLimit(3, SetClock())

    for _ in range(3):
        rate.take("a")

    with pytest.raises(RateLimitedError) as refused:
        rate.take("a")
    assert refused.value.retry_after == pytest.approx(20)


def test_one_key_doesnt_use_up_anothers_requests() -> None:
    rate = RateLimit(1, SetClock())

    rate.take("a")

    rate.take("b")


def test_after_the_time_that_was_told_the_next_request_is_let_in() -> None:
    clock = SetClock()
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
    clock = SetClock()
    rate = RateLimit(2, clock)
    rate.take("a")

    clock.seconds += 10_000

    rate.take("a")
    rate.take("a")
    with pytest.raises(RateLimitedError):
        rate.take("a")


def wrong_keys(clock: SetClock, *addresses: str, times: int = 20) -> WrongKeyLimit:
    """A limit that has counted so many wrong keys from each address."""
    limit = WrongKeyLimit(20, clock)
    for address in addresses:
        for _ in range(times):
            limit.count(address)
    return limit


@pytest.mark.parametrize(
    ("sent", "tried", "refused"),
    [
        pytest.param("192.0.2.1", "192.0.2.1", True, id="the same address"),
        pytest.param("192.0.2.1", "192.0.2.2", False, id="another address"),
        pytest.param("2001:db8::1", "2001:db8::2", True, id="the same IPv6 network"),
        pytest.param("2001:db8::1", "2001:db8:0:1::1", False, id="another IPv6 network"),
        pytest.param("192.0.2.1", "::ffff:192.0.2.1", True, id="the same address in IPv6"),
        pytest.param("", "", True, id="no address"),
    ],
)
def test_address_that_sent_too_many_wrong_keys_is_refused(sent: str, tried: str, *, refused: bool) -> None:
    limit = wrong_keys(SetClock(), sent)

    assert limit.is_used_up(tried) is refused
    if refused:
        with pytest.raises(TooManyWrongKeysError) as error:
            limit.count(tried)
        assert error.value.retry_after == pytest.approx(3)


@pytest.mark.parametrize(
    ("forwarded", "proxies", "address"),
    [
        pytest.param(["203.0.113.9"], [], "10.0.0.1", id="no proxy is trusted"),
        pytest.param(["203.0.113.9"], ["10.0.0.2"], "10.0.0.1", id="another proxy is trusted"),
        pytest.param(["203.0.113.9"], ["10.0.0.1"], "203.0.113.9", id="the proxy is trusted"),
        pytest.param(["8.8.8.8, 203.0.113.9"], ["10.0.0.1"], "203.0.113.9", id="the client made up another address"),
        pytest.param(["203.0.113.9", "10.1.1.1"], ["10.0.0.0/8"], "203.0.113.9", id="two proxies of a network"),
        pytest.param(["2001:db8::1"], ["fd00::/8", "10.0.0.1"], "2001:db8::1", id="IPv6"),
        pytest.param(["unknown"], ["10.0.0.1"], "10.0.0.1", id="the proxy sends no address"),
        pytest.param([], ["10.0.0.1"], "10.0.0.1", id="the proxy sends no header"),
    ],
)
def test_client_of_a_request_is_the_address_that_the_last_trusted_proxy_saw(
    forwarded: list[str], proxies: list[str], address: str
) -> None:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]

    assert address_of({"type": "http", "client": ("10.0.0.1", 4_000), "headers": headers}, proxies) == address


def test_address_may_send_another_wrong_key_after_a_while() -> None:
    clock = SetClock()
    limit = wrong_keys(clock, "192.0.2.1")

    clock.seconds += 3.1
    limit.count("192.0.2.1")

    with pytest.raises(TooManyWrongKeysError):
        limit.count("192.0.2.1")


def test_number_of_addresses_with_wrong_keys_that_are_remembered_is_bounded() -> None:
    limit = wrong_keys(SetClock(), "192.0.2.1")

    for number in range(10_000):
        limit.count(f"address {number}")

    assert not limit.is_used_up("192.0.2.1")
