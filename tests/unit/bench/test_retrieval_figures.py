"""The texts that retrieval is measured on, and how recall is computed from what was found."""

import pytest

from bench.labelled_texts import (
    Request,
    RequestSet,
    livemcpbench,
    metatool,
    roster_of,
    search_half,
    stabletoolbench,
)
from bench.retrieval import measured, share_found


@pytest.mark.parametrize("servers", [50, 811, 1600])
def test_requests_of_a_set_need_only_its_own_servers(servers: int) -> None:
    found = stabletoolbench(servers)

    assert len(found.roster.cards) == servers
    assert found.requests
    assert all(request.agents <= found.roster.cards.keys() for request in found.requests)


def test_searches_are_judged_on_the_requests_with_an_odd_hash() -> None:
    """The counts are those of `bench/data/README.md`."""
    for requests, judged in ((stabletoolbench(811), 192), (metatool(199), 1_133)):
        assert requests.judged == search_half(requests.requests, judged=True)
        assert len(requests.judged) == judged
        assert len(search_half(requests.requests, judged=False)) == len(requests.requests) - judged
    assert livemcpbench().judged == livemcpbench().requests
    some = [Request(text, frozenset()) for text in ("a", "b", "c")]  # SHA-256 ends in bb, 9d and 3 x 10 + 6
    assert [one.text for one in search_half(some, judged=True)] == ["a", "b"]


async def test_recall_is_that_of_judged_requests_and_of_all_beside_it() -> None:
    roster = roster_of([{"server": "clock", "description": "The time.", "tools": []}])
    found, missed = Request("The time?", frozenset({"clock"})), Request("Rain?", frozenset({"forecast"}))

    result = await measured(RequestSet("clocks", roster, [found, missed], [found]), None)

    assert (result.recall[5], result.judged, result.recall_of_all[5]) == (1.0, 1, 0.5)


def test_more_servers_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="metatool has 1065 servers"):
        metatool(1066)


@pytest.mark.parametrize(
    ("depth", "share"),
    [pytest.param(1, 0.5, id="one of two"), pytest.param(2, 0.5, id="a wrong one"), pytest.param(3, 1.0, id="both")],
)
def test_share_found_counts_the_needed_agents_among_the_first_ones(depth: int, share: float) -> None:
    assert share_found(Request("", frozenset({"a", "b"})), ["a", "c", "b"], depth) == share


def test_requests_with_plans_of_people_need_a_server_and_have_steps_without_numbers() -> None:
    requests = livemcpbench().requests

    assert (len(requests), requests[4].steps[0]) == (39, "get leetcode daily challenge")
    assert all(request.agents for request in requests)
