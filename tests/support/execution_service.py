"""An execution service in a process of its own, and what it was asked."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_gateway.configuration.servers import ServerConfig, server_of
from tests.support.gateway_harness import SERVERS, free_port, wait_for_port

EFFECTS = {"echo": {"effect": "read"}, "object": {"effect": "idempotent"}}


@dataclass
class ExecutionService:
    """The service of a test on one port, which can end and start again."""

    record: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Generator[subprocess.Popen[str]]:
        command = [sys.executable, SERVERS / "execution_service.py", self.record, str(self.port)]
        with subprocess.Popen(command, text=True) as process:
            wait_for_port(self.port, process)
            try:
                yield process
            finally:
                process.kill()

    def config(self, path: str = "", **options: Any) -> ServerConfig:
        return server_of(
            {
                "type": "execution_service",
                "url": self.url + path,
                "headers": {"Authorization": "Bearer ${SERVICE_TOKEN}"},
                "x-starling": {"tools": EFFECTS, **options},
            }
        )

    def requests(self, path: str = "/execute") -> list[Mapping[str, Any]]:
        lines = map(json.loads, self.record.read_text().splitlines()) if self.record.exists() else ()
        return [line for line in lines if line["path"] == path]
