"""What a server sends on its way to the session."""

import json
from collections.abc import Mapping
from typing import Any

from mcp_gateway.sessions.inbox import LIST_CHANGED, Inbox

FLOOD = 1_000


def notification(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": {}}).encode()


async def test_change_of_the_tools_is_passed_on_during_a_flood_of_notifications() -> None:
    passed_on: list[str] = []

    def notify(method: str, _: Mapping[str, Any]) -> None:
        passed_on.append(method)

    inbox = Inbox(notify)
    for method in (*["notifications/message"] * FLOOD, LIST_CHANGED):
        await inbox.take(notification(method))

    assert passed_on[-1] == LIST_CHANGED
    assert inbox.dropped > FLOOD / 2
