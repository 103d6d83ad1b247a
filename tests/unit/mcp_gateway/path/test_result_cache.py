"""Kept results: how many there are."""

from mcp_gateway.path.result_cache import ResultCache
from starling.core.tool_calls import Observation
from starling.core.tools import ToolOutcome


def key(name: str) -> tuple[str, str, str, str, str]:
    return "default", f"shop.{name}", "hash", "config", "{}"


def result(characters: int) -> ToolOutcome:
    return ToolOutcome(Observation.COMPLETED, "x" * characters)


def test_least_recently_used_results_make_room() -> None:
    cache = ResultCache(lambda: 0.0, most_chars=3_600)
    for name in ("first", "second", "third"):
        cache.put(key(name), result(600), cache.version)
    cache.get(key("first"), 1)

    cache.put(key("fourth"), result(600), cache.version)

    assert [name for name in ("first", "second", "third", "fourth") if cache.get(key(name), 1)] == [
        "first",
        "third",
        "fourth",
    ]


def test_result_that_is_too_large_is_not_kept() -> None:
    cache = ResultCache(lambda: 0.0)

    cache.put(key("find"), result(1_000_001), cache.version)

    assert cache.get(key("find"), 1) is None


def test_missed_announcements_empty_the_cache() -> None:
    cache = ResultCache(lambda: 0.0)
    cache.put(key("find"), result(1), cache.version)

    cache.clear()

    assert cache.get(key("find"), 1) is None
