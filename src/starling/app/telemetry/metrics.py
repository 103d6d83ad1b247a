"""Prometheus metrics of a process. No label is a run, a thread or a tenant."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from starling.app.telemetry.build_info import build_info
from starling.core.agents import SPECIALIST_PREFIX
from starling.core.errors import DatabaseUnavailableError
from starling.core.run_document.rows import EventRow
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.leases import Backlog

_FRESH_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 1.0
_UNFINISHED: Final = tuple(status for status in RunStatus if not status.terminal)
_RUN_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_CALL_BUCKETS: Final = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_FLUSH_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)


_MOST_NAMES: Final = 500  # of agents that are labels; specialists of servers always are


type Measurement = tuple[str, Sequence[str], float]
"""A value of an instrument, by the attribute of Metrics that it has, with its labels."""


class Metrics:
    """The instruments of one process; their help texts describe them.

    `measured` keeps what `measure` was given where it is a list, for a process that hands it over to another one.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"starling_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"starling_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"starling_{name}", text, labels, buckets=buckets, registry=registry)

        self.runs_ended = counter("runs_ended", "Runs that this process ended.", "status")
        for status in RunStatus:
            if status.terminal:
                self.runs_ended.labels(status.value)  # 0, so that rules see the first one as an increase
        self.run_seconds = histogram("run_seconds", "From a run's claim to its end.", _RUN_BUCKETS, "status")
        self.runs_degraded = counter("runs_degraded", "Ended runs without a part of the answer, by reason.", "reason")
        outcomes = "`other` where the settings choose none such; outcome is ok, or the code of the error."
        self.model_calls = counter("model_calls", f"Answers of models, {outcomes}", "role", "model", "outcome")
        self.model_tokens = counter("model_tokens", "Tokens as endpoints count them.", "role", "model", "direction")
        self.model_seconds = histogram(
            "model_call_seconds", "Whole answers with fallbacks and waits.", _CALL_BUCKETS, "role"
        )
        failures = "outcome is succeeded, or the code of the failure."
        self.tool_calls = counter("tool_calls", f"Calls of tools; {failures}", "server", "outcome")
        self.tool_seconds = histogram("tool_call_seconds", "Calls of tools, the whole path.", _CALL_BUCKETS, "server")
        self.verdicts = counter(
            "verdicts", "Verdicts of reviews; agent is `other` for members of teams.", "agent", "status"
        )
        self.flush_seconds = histogram("flush_seconds", "Making events durable.", _FLUSH_BUCKETS)
        self.requests = counter("http_requests", "Requests by route.", "method", "route", "status")
        self.streams = gauge("streams_open", "Event streams that are being read here.")
        self.sessions = gauge("sessions_open", "Sessions with MCP servers, opening ones too.")
        self.breakers = gauge(
            "server_breakers_open",
            "Processes of the database whose calls of a server fail at once, because it failed there in a row.",
            "server",
        )
        self.server_failures = counter(
            "server_failures", "Starts and connections of servers that failed or were lost, and silent calls.", "server"
        )
        self.epoch = gauge("epoch", "The active epoch.")
        self.known_epoch = gauge("known_epoch", "The epoch that this process' tools are of; 0 where it calls none.")
        self.known_since = gauge(
            "known_epoch_timestamp_seconds",
            "When this process' tools became those of that epoch, in Unix time; 0 where it calls none.",
        )
        self.unfinished = gauge("runs", "Unfinished runs of the database.", "status")
        self.interrupts = gauge(
            "open_interrupts", "Questions and approvals that wait for a person; age is hour, day, week or older.", "age"
        )
        self.oldest = gauge(
            "oldest_queued_seconds",
            "How long the first queued run has waited for a worker; not those held back by a thread or a limit.",
        )
        self.database = gauge("database_up", "Whether Postgres answers and takes writes: 1 or 0.")
        self.build = gauge("build_info", "1; the labels say what runs here.", "version", "commit")
        ProcessCollector(registry=registry)
        self.measured: list[Measurement] | None = None
        self._names = set[str]()

    def measure(self, instrument: str, *labels: str, value: float = 1) -> None:
        """Add to a counter, or observe by a histogram."""
        found: Counter | Histogram = getattr(self, instrument)
        child = found.labels(*labels) if labels else found
        child.inc(value) if isinstance(child, Counter) else child.observe(value)
        if self.measured is not None:
            self.measured.append((instrument, labels, value))

    def take_over(self, measured: Sequence[Measurement]) -> None:
        """Count what another process measured."""
        for instrument, labels, value in measured:
            self.measure(instrument, *labels, value=value)

    def written(self, _: str, events: Sequence[EventRow], seconds: float) -> None:
        """Count a flush, its verdicts, and the run that ended with it."""
        self.measure("flush_seconds", value=seconds)
        for event in events:
            if event.type == "reflection":
                self.measure("verdicts", self._agent_label(event.data), event.data["status"])
        if events and events[-1].type == "done":
            self.measure("runs_ended", str(events[-1].data["status"]))

    def _agent_label(self, verdict: Mapping[str, Any]) -> str:
        """Return the name of an agent; `other` for members of teams, and beyond the first names that callers chose."""
        agent: str = verdict["agent"]
        if "/" in verdict["path"]:
            return "other"
        if agent.startswith(SPECIALIST_PREFIX) or len(self._names) < _MOST_NAMES:
            self._names.add(agent)
        return agent if agent in self._names else "other"

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def look(self, backlog: Backlog, epoch: int | None, breakers: Mapping[str, Sized]) -> None:
        """Set the gauges that come from the database; `breakers` are the open ones of each server."""
        self.breakers.clear()
        for server, found in breakers.items():
            self.breakers.labels(server).set(len(found))
        self.epoch.set(epoch or 0)
        self.oldest.set(backlog.oldest_seconds)
        for age in ("hour", "day", "week", "older"):
            self.interrupts.labels(age).set(backlog.interrupts.get(age, 0))
        for status in _UNFINISHED:
            self.unfinished.labels(status.value).set(backlog.unfinished.get(status, 0))


@dataclass(slots=True)
class MetricsExporter:
    """Exports the metrics; the database is read at most every five seconds."""

    metrics: Metrics
    check_writes: Callable[[], Awaitable[object]]
    backlog: Callable[[], Awaitable[Backlog]]
    epoch: Callable[[], Awaitable[int | None]]
    breakers: Callable[[], Awaitable[Mapping[str, Sized]]]
    _reading: asyncio.Task[None] | None = field(default=None, init=False)
    _read: float = field(default=float("-inf"), init=False)

    async def text(self) -> bytes:
        """Return all metrics within two seconds.

        While Postgres is away or silent, those from it are what they last were, and `starling_database_up` is 0.
        """
        if monotonic() - self._read >= _FRESH_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.get_running_loop().create_task(self._read_database(), name="read-metrics")
            if not (await asyncio.wait({self._reading}, timeout=_WAIT_SECONDS))[0]:
                self.metrics.database.set(0)
        return self.metrics.text()

    async def _read_database(self) -> None:
        build = await asyncio.to_thread(build_info)  # the first time it may run git
        self.metrics.build.labels(build.version, build.commit).set(1)
        try:
            self.metrics.look(await self.backlog(), await self.epoch(), await self.breakers())
            await self.check_writes()
            self.metrics.database.set(1)
        except DatabaseUnavailableError:
            self.metrics.database.set(0)
        self._read = monotonic()
