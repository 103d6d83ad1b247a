"""Progress and log messages of servers: of which call, and how many."""

from typing import Any

import pytest

from mcp_gateway.sessions.notices import CallNotices, SessionNotices
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolDefinition, ToolNotice

TOOL = ToolDefinition("a", "act", "", {}, None, Effect.READ, "")
LOG = "notifications/message"
PROGRESS = "notifications/progress"


class Session:
    """A session with open calls; `heard` has what each run was told."""

    def __init__(self) -> None:
        self.notices = SessionNotices()
        self.heard: dict[str, list[ToolNotice]] = {}

    def begin(self, run: str, tenant: str = "t") -> int:
        heard = self.heard.setdefault(run, [])
        call = ToolCall("c", run, "t1", TOOL, {}, tenant=tenant, on_notice=heard.append)
        return self.notices.begin(CallNotices(call, lambda text: text.replace("secret", "***")))


@pytest.fixture
def session() -> Session:
    return Session()


def test_progress_goes_to_the_call_whose_token_it_has(session: Session) -> None:
    first, second = session.begin("first"), session.begin("second")
    session.notices.take(PROGRESS, {"progressToken": second, "progress": 2, "total": 5, "message": "a secret"})
    session.notices.end(first)
    session.notices.take(PROGRESS, {"progressToken": first, "progress": 9})

    assert session.heard == {"first": [], "second": [ToolNotice("a ***", progress=2, total=5)]}


@pytest.mark.parametrize(
    "params",
    [
        {"progress": 1},
        {"progressToken": "1", "progress": 1},
        {"progressToken": 1, "progress": "x"},
        {"progressToken": 1, "progress": True},
        {"progressToken": 1, "progress": 10**400},
        {"progressToken": [1], "progress": 1},
    ],
)
def test_progress_without_a_token_or_a_number_is_dropped(session: Session, params: dict[str, Any]) -> None:
    session.begin("first")
    session.notices.take(PROGRESS, params)

    assert session.heard == {"first": []}


def test_log_message_goes_to_the_only_run(session: Session) -> None:
    session.begin("first")
    session.notices.take(LOG, {"level": "warning", "logger": "db", "data": {"rows": 5}})
    session.notices.take(LOG, {"data": "x" * 900})

    assert session.heard["first"][0] == ToolNotice('{"rows":5}', level="warning", logger="db")
    assert (session.heard["first"][1].level, len(session.heard["first"][1].message)) == ("info", 500)


def test_log_message_of_two_runs_goes_to_none(session: Session) -> None:
    session.begin("first")
    session.begin("second")
    session.notices.take(LOG, {"data": "whose?"})

    assert session.heard == {"first": [], "second": []}


def test_log_message_of_a_session_that_served_another_tenant_goes_to_none(session: Session) -> None:
    session.notices.end(session.begin("first", tenant="other"))
    session.begin("second")
    session.notices.take(LOG, {"data": "about the other tenant"})

    assert session.heard["second"] == []


def test_notices_of_a_call_are_few(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mcp_gateway.sessions.notices.monotonic", lambda: now[0])
    token = session.begin("first")

    def told(count: int) -> int:
        before = len(session.heard["first"])
        for number in range(count):
            session.notices.take(PROGRESS, {"progressToken": token, "progress": number})
        return len(session.heard["first"]) - before

    assert told(50) == 5
    now[0] = 1.0
    assert told(50) == 1
    now[0] = 1_000.0
    assert sum(told(5) for now[0] in range(1_000, 2_000)) == 94
