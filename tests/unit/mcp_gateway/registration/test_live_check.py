"""When the tools of open sessions are listed again."""

from mcp_gateway.registration.live_check import AGAIN_SECONDS, DEBOUNCE_SECONDS, delay_before_listing


def test_servers_that_change_together_are_not_listed_again_together() -> None:
    delays = [delay_before_listing(elapsed) for elapsed in (0.0, 5.0, 60.0) for _ in range(20)]

    assert len(set(delays)) > 50
    assert min(delays[:20]) >= AGAIN_SECONDS
    assert DEBOUNCE_SECONDS <= min(delays[40:]) <= max(delays[40:]) < 2 * DEBOUNCE_SECONDS
