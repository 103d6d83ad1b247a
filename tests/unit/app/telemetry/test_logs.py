"""Logs are read by machines and by people, and hold no secret."""

import io
import json
import logging
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from starling.app.telemetry.log_context import bound_log_context
from starling.app.telemetry.logs import configure_logs
from starling.core.secrets.look_alikes import Redaction
from starling.core.settings.schema import ProviderSettings, Settings
from tests.support.logging_state import restored_logging

CANARIES = {
    "database": "postgresql://us:pa%40ss-canary@db.example/x",
    "password": "pa%40ss-canary",
    "decoded": "pa@ss-canary",
    "openai": "openai-canary-with-no-prefix",
    "provider": "provider'canary\"quoted",
    "unknown_key": "sk-unknown_canary-0123",
    "bearer": "bearer-canary.0123",
}
SAID = (
    "{database} {password} {decoded} {openai} {provider} {unknown_key} Authorization: Bearer {bearer} "
    "{{'authorization': 'Basic {bearer}'}} https://somebody:{bearer}@proxy.example/"
).format(**CANARIES)
SETTINGS = Settings(
    database_url=SecretStr(CANARIES["database"]),
    openai_api_key=SecretStr(CANARIES["openai"]),
    providers={"own": ProviderSettings(base_url="http://localhost", api_key=SecretStr(CANARIES["provider"]))},
)


@pytest.fixture(autouse=True)
def logging_as_before() -> Generator[None]:
    with restored_logging():
        yield


def test_warning_of_the_mcp_session_is_not_logged_and_its_error_is() -> None:
    file = io.StringIO()
    configure_logs("INFO", Console(file=file), SETTINGS)
    said = [("/mcp/shared/session.py", logging.WARNING, "secret"), ("/mcp/shared/session.py", logging.ERROR, "broken")]

    for path, level, text in (*said, ("/somebody/else.py", logging.WARNING, "of use")):
        logging.getLogger().handle(logging.LogRecord("root", level, path, 1, text, (), None))

    assert [json.loads(line)["event"] for line in file.getvalue().splitlines()] == ["broken", "of use"]


def logged(settings: Settings = SETTINGS, *, terminal: bool = False) -> str:
    """Return what is written of one message that holds every canary, everywhere."""
    file = io.StringIO()
    configure_logs("INFO", Console(file=file, force_terminal=terminal, width=1000, highlight=False), settings)
    log = logging.getLogger("starling.test")
    with bound_log_context(run_id="r1", tenant="acme", trace_id="t1", correlation_id="c1"):
        try:
            raise ValueError(SAID)
        except ValueError:
            log.exception("it said %s", SAID, extra={"more": {"deep": [SAID]}})
    return file.getvalue()


def test_line_without_a_terminal_is_a_json_object_with_bound_values() -> None:
    (line,) = logged().splitlines()
    document: dict[str, Any] = json.loads(line)

    assert document["event"].startswith("it said ***")
    assert (document["level"], document["logger"]) == ("error", "starling.test")
    assert [document[name] for name in ("run_id", "tenant", "trace_id", "correlation_id")] == ["r1", "acme", "t1", "c1"]
    assert "ValueError" in document["exception"]
    assert document["timestamp"].endswith("Z")


def test_line_on_a_terminal_is_text() -> None:
    text = Text.from_ansi(logged(terminal=True)).plain

    assert "it said ***" in text
    assert "run_id=r1 tenant=acme" in text
    assert not text.startswith("{")


@pytest.mark.parametrize("log_format", ["json", "text", "auto"])
@pytest.mark.parametrize("terminal", [False, True])
def test_log_in_any_format_holds_no_secret(log_format: str, terminal: bool) -> None:
    text = logged(SETTINGS.model_copy(update={"log_format": log_format}), terminal=terminal)

    assert "it said" in text
    assert [name for name, canary in CANARIES.items() if canary in text or json.dumps(canary)[1:-1] in text] == []


def test_format_json_is_used_on_a_terminal_too() -> None:
    assert json.loads(logged(SETTINGS.model_copy(update={"log_format": "json"}), terminal=True))["run_id"] == "r1"


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_file_watcher_logs_no_line_for_each_change(level: str) -> None:
    file = io.StringIO()
    configure_logs(level, Console(file=file), SETTINGS)

    logging.getLogger("watchfiles.main").info("1 change detected")

    assert file.getvalue() == ""


def test_content_of_event_streams_is_not_logged() -> None:
    file = io.StringIO()
    configure_logs("DEBUG", Console(file=file), SETTINGS)

    logging.getLogger("sse_starlette.sse").debug("chunk: %s", b"data: what somebody asked")

    assert file.getvalue() == ""


@given(
    st.text(min_size=6).filter(lambda text: len("".join(text.replace("\\n", "").split())) >= 6), st.text(), st.text()
)
def test_known_secret_is_removed_wherever_it_occurs(secret: str, before: str, after: str) -> None:
    assert (
        secret not in Redaction([secret])(f"{before}{secret}{after}").replace("***", "\ud800")  # in no generated text
        or secret in before + after
    )


def test_text_that_only_resembles_secrets_is_unchanged() -> None:
    text = "the task-force asked for a bearer of news; authorization is needed; http://host:8000/a@b"

    assert Redaction(["ab"])(text) == text
