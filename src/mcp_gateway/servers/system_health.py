"""An MCP server with measurements of this machine. Run it with `python -m mcp_gateway.servers.system_health`.

It only reads. It is made with the SDK's own FastMCP, which starts in half the time of the fastmcp package.
"""

import os
import time
from typing import Annotated, Any, Literal

import anyio
import psutil
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

_SAMPLE_SECONDS = 0.1
_MEASURES = ["pid", "name", "username", "cpu_percent", "memory_info", "memory_percent"]
_READ_ONLY = ToolAnnotations(readOnlyHint=True, openWorldHint=False)

server = FastMCP(
    "system_health",
    instructions="Health of the machine that the platform runs on: processor, memory, disk space, load and processes.",
    log_level="WARNING",
)


class Cpu(BaseModel):
    """How busy the processor is."""

    percent: float = Field(description="use of all processors together, 0 to 100, over the last tenth of a second")
    percent_each: list[float] = Field(description="use of each logical processor, 0 to 100")
    logical: int = Field(description="logical processors")
    physical: int | None = Field(description="physical cores; null where the system doesn't tell")
    frequency_mhz: float | None = Field(description="current clock; null where the system doesn't tell")


class Memory(BaseModel):
    """How much memory there is, and how much of it is used."""

    total_bytes: int
    available_bytes: int = Field(description="what programs can get without swapping")
    used_bytes: int
    percent: float = Field(description="share in use, 0 to 100")
    swap_total_bytes: int
    swap_used_bytes: int


class Disk(BaseModel):
    """How full a disk is."""

    path: str = Field(description="the folder that was asked for")
    total_bytes: int
    used_bytes: int
    free_bytes: int = Field(description="what ordinary users can still write")
    percent: float = Field(description="how full it is, 0 to 100")


class Load(BaseModel):
    """How many processes want to run, and for how long the machine has been up."""

    one_minute: float
    five_minutes: float
    fifteen_minutes: float
    per_cpu: float = Field(description="the one-minute load for each logical processor; above 1 means that work waits")
    uptime_seconds: int = Field(description="time since the machine was started")


class Process(BaseModel):
    """One process."""

    pid: int
    name: str
    user: str | None = Field(description="null where the system doesn't tell")
    cpu_percent: float = Field(description="100 is one whole processor, over the last tenth of a second")
    memory_bytes: int = Field(description="resident memory")
    memory_percent: float


class Processes(BaseModel):
    """The processes that use most."""

    total: int = Field(description="all processes that run")
    sorted_by: str
    processes: list[Process]


@server.tool(title="Processor use", annotations=_READ_ONLY)
async def cpu() -> Cpu:
    """How busy the machine's processor (CPU) is right now: use in percent, together and each, cores, clock."""
    psutil.cpu_percent(percpu=True)  # a first reading, for the second to compare with
    await anyio.sleep(_SAMPLE_SECONDS)
    each = psutil.cpu_percent(percpu=True)
    frequency = psutil.cpu_freq()
    return Cpu(
        percent=round(sum(each) / max(1, len(each)), 1),
        percent_each=each,
        logical=len(each),
        physical=psutil.cpu_count(logical=False),
        frequency_mhz=frequency.current if frequency else None,
    )


@server.tool(title="Memory use", annotations=_READ_ONLY)
def memory() -> Memory:
    """How much memory (RAM) and swap the machine has, and how much of it is used and available (free), in bytes."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(
        total_bytes=ram.total,
        available_bytes=ram.available,
        used_bytes=ram.used,
        percent=ram.percent,
        swap_total_bytes=swap.total,
        swap_used_bytes=swap.used,
    )


@server.tool(title="Disk space", annotations=_READ_ONLY)
def disk(
    path: Annotated[str, Field(description="a folder on the disk in question; / is the system's disk")] = "/",
) -> Disk:
    """How full the disk is that holds a folder: total, used and free space in bytes, and the share in use."""
    try:
        usage = psutil.disk_usage(path)
    except (OSError, ValueError) as error:
        raise ToolError(f"The space at {path!r} can't be read: {error}") from None
    return Disk(path=path, total_bytes=usage.total, used_bytes=usage.used, free_bytes=usage.free, percent=usage.percent)


@server.tool(title="Load average and uptime", annotations=_READ_ONLY)
def load() -> Load:
    """The load average of the machine, last 1, 5 and 15 minutes (processes that want to run); time since start."""
    one, five, fifteen = os.getloadavg()
    return Load(
        one_minute=one,
        five_minutes=five,
        fifteen_minutes=fifteen,
        per_cpu=round(one / (os.cpu_count() or 1), 2),
        uptime_seconds=int(time.time() - psutil.boot_time()),
    )


@server.tool(title="Processes", annotations=_READ_ONLY)
async def processes(
    limit: Annotated[int, Field(ge=1, le=100, description="how many to return")] = 10,
    sort_by: Annotated[Literal["cpu", "memory"], Field(description="what to rank them by")] = "cpu",
) -> Processes:
    """The processes that use most of the processor or the memory, the biggest first."""
    for process in psutil.process_iter():  # which returns the same objects again
        _measured(process, ["cpu_percent"])  # a first reading, for the second to compare with
    await anyio.sleep(_SAMPLE_SECONDS)
    measured = [_measured(process, _MEASURES) for process in psutil.process_iter()]
    found = [
        Process(
            pid=known["pid"],
            name=known["name"] or "",
            user=known["username"],
            cpu_percent=known["cpu_percent"] or 0.0,
            memory_bytes=known["memory_info"].rss,
            memory_percent=round(known["memory_percent"] or 0.0, 2),
        )
        for known in measured
        if known.get("memory_info")
    ]
    found.sort(key=lambda item: item.cpu_percent if sort_by == "cpu" else item.memory_bytes, reverse=True)
    return Processes(total=len(found), sorted_by=sort_by, processes=found[:limit])


def _measured(process: psutil.Process, names: list[str]) -> dict[str, Any]:
    """Return these measures of a process, None for one that the system refuses; nothing where it has ended."""
    try:
        return process.as_dict(names)
    except psutil.NoSuchProcess:
        return {}


if __name__ == "__main__":
    server.run()
