"""README and guides: their commands work as written, on a running platform."""

import re
import subprocess
import sys
from collections.abc import Generator
from functools import partial

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.support.command_line import new_workspace
from tests.support.documented_commands import (
    NOT_RUN,
    PAGES,
    REFERENCE,
    ROOT,
    blocks,
    is_shown,
    reason_not_to_run,
    unshown,
)
from tests.support.guide_runner import GuideRunner
from tests.support.model_server import ModelServer, offline_rules
from tests.support.otlp_collector import Collector

_DATABASE = "postgresql://user:password@host:5432/starling"
_RESTORED = "postgresql://user:password@new-host:5432/starling"
_TRACES = "docs/guides/reading-a-trace.md"


@pytest.fixture(scope="module")
def shop() -> Generator[str]:
    """The address of the shop of the examples, on a free port; it stands in for servers of others, too."""
    command = [sys.executable, ROOT / "examples" / "servers" / "shop.py", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def portal() -> Generator[BlockingPortal]:
    """A thread with a loop, for servers beside tests that aren't coroutines."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def model(portal: BlockingPortal) -> Generator[ModelServer]:
    with portal.wrap_async_context_manager(ModelServer(offline_rules)) as server:
        yield server


@pytest.fixture(scope="module")
def collector(portal: BlockingPortal) -> Generator[Collector]:
    with portal.wrap_async_context_manager(Collector()) as collector:
        yield collector


@pytest.fixture(scope="module")
def everywhere(shop: str, model: ModelServer, collector: Collector) -> Generator[GuideRunner]:
    stand_ins = {
        "http://127.0.0.1:9100/mcp": shop,
        "https://shop.example/mcp": shop,
        "https://weather.example/mcp": shop,
        "http://localhost:9000/v1": model.url,
        "https://langfuse.example.org": collector.url,
        "http://localhost:4318": collector.url,
        "~/.local/share/starling/token": "data/token",
    }
    with new_workspace() as workspace, GuideRunner.in_clone(workspace, stand_ins) as reader:
        yield reader


@pytest.fixture
def reader(everywhere: GuideRunner, empty_database_url: str, restored_database_url: str) -> GuideRunner:
    everywhere.stand_ins |= {_DATABASE: empty_database_url, _RESTORED: restored_database_url}
    return everywhere


@pytest.mark.parametrize("page", [page for page in PAGES if page != _TRACES])
def test_commands_of_a_page_work(reader: GuideRunner, page: str) -> None:
    for _ in reader.follow(page):
        pass


def test_commands_of_the_tracing_page_send_traces(
    reader: GuideRunner, portal: BlockingPortal, collector: Collector
) -> None:
    typed = reader.follow(_TRACES)

    for path in ("/api/public/otel/v1/traces", "/v1/traces"):
        next(typed)
        portal.call(collector.until, partial(_received, path))


def _received(path: str, collector: Collector) -> bool:
    return path in collector.paths and bool(collector.named("run.segment"))


@pytest.mark.parametrize("page", [*PAGES, *REFERENCE])
def test_commands_mentioned_on_a_page_are_run_by_a_page(page: str) -> None:
    assert unshown(page) == []


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_are_run_are_marked(page: str) -> None:
    found = blocks(page)
    marks = [block.mark for block in found if block.mark]

    assert [mark for mark in marks if not re.fullmatch(r"exit code: \d+|file: [\w.]+", mark)] == []
    assert {block.language for block in found} <= {"sh", "console", "text", "json", "yaml", "python", ""}
    assert not [block for block in found if not block.is_run and re.search(r"^\$ ", block.text, re.MULTILINE)]


@pytest.mark.parametrize(
    "line",
    [
        "starling run cancel --all",
        "starling key rotate ID",
        "starling server add NAME -- COMMAND --effect read --timeout 3",
        "make clean",
        "ollama pull llama3.2:3b",
        ".venv/bin/python -m brain",
        "curl --compressed http://127.0.0.1:8000/health",
        "--yes",
    ],
)
def test_command_that_no_page_runs_is_found(line: str) -> None:
    assert not is_shown(line, "docs/guides/keys.md")


def test_exceptions_from_running_are_still_needed() -> None:
    written = [command for page in PAGES for block in blocks(page) if block.is_run for command, _ in block.commands()]

    assert {reason_not_to_run(command) for command in written} == {"", *NOT_RUN.values()}
