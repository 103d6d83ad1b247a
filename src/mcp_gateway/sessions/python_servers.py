"""MCP servers in this process: FastMCP objects and marked functions, by the entry points of installed packages."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

import anyio.to_thread
import mcp.types as wire
from mcp.server.lowlevel import Server

from starling.core.function_tools import mark_of

REMEDY: Final = "Install its package, and what it needs, where Starling is installed, and start again."
_GROUP: Final = "starling.servers"
_MISSING: Final = "it needs FastMCP, which is not installed: `pip install 'starling-swarm[inprocess]'` adds it"
_EMPTY: Final = "it is no FastMCP server, and nothing in it is marked with @starling.tool"


@asynccontextmanager
async def open_python_server(name: str, entry_point: str) -> AsyncGenerator[Server[Any, Any]]:
    """Yield the server that an entry point names. Raises LookupError, and ImportError if it can't be served."""
    found = next(iter(entry_points(group=_GROUP, name=entry_point)), None)
    if found is None:
        known = ", ".join(sorted({one.name for one in entry_points(group=_GROUP)})) or "none"
        raise LookupError(f"no installed package has the entry point {entry_point!r} in {_GROUP!r}; there are: {known}")
    try:
        served = _served(name, found.load())
    except (Exception, SystemExit) as error:  # code of others
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "fastmcp"
        reason = f"its entry point can't be used: {type(error).__name__}: {error}"
        raise ImportError(_MISSING if is_missing else reason) from error
    lifespan: AbstractAsyncContextManager[None] = getattr(served, "_lifespan_manager", nullcontext)()  # of `fastmcp`
    async with lifespan:
        yield _guarded(served._mcp_server)  # noqa: SLF001 - as above: FastMCP has no public name for either


def _served(name: str, target: Any) -> Any:
    """Return the FastMCP server, of either package, that a target is, or one with its marked functions."""
    if isinstance(getattr(target, "_mcp_server", None), Server):
        manager = getattr(target, "_tool_manager", None)  # of the SDK's FastMCP, which calls functions on the loop
        for one in manager.list_tools() if manager else ():
            if not one.is_async:
                one.fn, one.is_async = partial(_in_thread, one.fn), True
        return target
    if not (functions := _marked(target)):
        raise TypeError(_EMPTY)
    from fastmcp import FastMCP
    from fastmcp.tools import Tool

    made = FastMCP(name)
    for function in functions:
        own_name, description = mark_of(function) or ("", "")
        made.add_tool(Tool.from_function(function, name=own_name or None, description=description or None))
    return made


def _marked(target: Any) -> Sequence[Any]:
    """Return the marked functions of a module or object; of a marked function itself."""
    found = (getattr(target, name, None) for name in dir(target) if not name.startswith("__"))
    return [target] if mark_of(target) else [function for function in found if callable(function) and mark_of(function)]


async def _in_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)


def _guarded(server: Server[Any, Any]) -> Server[Any, Any]:
    """Return the server with calls whose exceptions, also SystemExit, are errors of these calls only."""
    call, guarded = server.request_handlers[wire.CallToolRequest], copy(server)

    async def answer(request: wire.CallToolRequest) -> wire.ServerResult:
        try:
            return await call(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge to code of others: a call is one result
            text = wire.TextContent(type="text", text=f"{type(error).__name__}: {error}")
            return wire.ServerResult(wire.CallToolResult(content=[text], isError=True))

    guarded.request_handlers = {**server.request_handlers, wire.CallToolRequest: answer}
    return guarded
