"""MCP servers in this process: FastMCP objects and marked functions, by the entry points of installed packages."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from functools import partial
from importlib.metadata import entry_points
from inspect import getattr_static
from typing import Any, Final

import anyio.to_thread
import mcp.types as wire
from mcp.server.lowlevel import Server

from starling.core.function_tools import mark_of

REMEDY: Final = "Install its package, and what it needs, where Starling is installed, and start again."
_GROUP: Final = "starling.servers"
_MISSING: Final = "it needs FastMCP, which is not installed: `pip install 'starling-swarm[inprocess]'` adds it"
_ENDING: Final = (SystemExit, KeyboardInterrupt)  # Ctrl-C comes to the main thread: here only code raises them
_EMPTY: Final = "it is no FastMCP server, and nothing in it is marked with @starling.tool"


@asynccontextmanager
async def open_python_server(name: str, entry_point: str) -> AsyncGenerator[Server[Any, Any]]:
    """Yield the server that an entry point names. Raises LookupError, and ImportError if it can't be served."""
    found = next(iter(entry_points(group=_GROUP, name=entry_point)), None)
    if found is None:
        known = ", ".join(sorted({one.name for one in entry_points(group=_GROUP)})) or "none"
        raise LookupError(f"no installed package has the entry point {entry_point!r} in {_GROUP!r}; there are: {known}")
    anyio.to_thread.current_default_thread_limiter().total_tokens = math.inf  # a function may never give its back
    log = logging.getLogger("fastmcp")
    level = log.level
    try:
        target = await anyio.to_thread.run_sync(found.load, abandon_on_cancel=True)
        served = _served(name, target)
    except (Exception, *_ENDING) as error:  # code of others
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "fastmcp"
        reason = f"its entry point can't be used: {type(error).__name__}: {error}"
        raise ImportError(_MISSING if is_missing else reason) from error
    finally:
        _keep_log(log, level)
    lifespan: AbstractAsyncContextManager[None] = getattr(served, "_lifespan_manager", nullcontext)()  # of `fastmcp`
    async with lifespan:
        yield _guarded(served._mcp_server)  # noqa: SLF001 - as above: FastMCP has no public name for either


def _keep_log(log: logging.Logger, level: int) -> None:
    """Undo what FastMCP does when it is imported: it logs to stderr, past the platform's log, which masks secrets."""
    for handler in tuple(log.handlers):
        log.removeHandler(handler)
    log.propagate = True
    log.setLevel(level)


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

    made, names = FastMCP(name), set[str]()
    for function in functions:
        own_name, description = mark_of(function) or ("", "")
        tool = Tool.from_function(function, name=own_name or None, description=description or None)
        if tool.name in names:  # FastMCP would replace the first
            raise ValueError(f"two functions are marked as the tool {tool.name!r}")
        names.add(tool.name)
        made.add_tool(tool)
    return made


def _marked(target: Any) -> Sequence[Any]:
    """Return the marked functions of a module or object; of a marked function itself."""
    if mark_of(target):
        return [target]
    marked: list[Any] = []
    for name in dir(target):
        if not name.startswith("__") and mark_of(getattr_static(target, name, None)):  # which evaluates no property
            function = getattr(target, name)
            if callable(function) and function not in marked:  # several names may be of one function
                marked.append(function)
    return marked


async def _in_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)


def _guarded(server: Server[Any, Any]) -> Server[Any, Any]:
    """Return the server with calls whatever of which is raised, also SystemExit, is an error of these calls only."""
    call, guarded = server.request_handlers[wire.CallToolRequest], copy(server)

    async def answer(request: wire.CallToolRequest) -> wire.ServerResult:
        try:
            return _readable(await call(request))
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return _raised(error)  # by the function itself: nobody cancelled it
        except (Exception, *_ENDING) as error:  # noqa: BLE001 - the edge to code of others: a call is one result
            return _raised(error)

    guarded.request_handlers = {**server.request_handlers, wire.CallToolRequest: answer}
    return guarded


def _raised(error: BaseException) -> wire.ServerResult:
    text = f"{type(error).__name__}: {error}"
    return _readable(
        wire.ServerResult(wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], isError=True))
    )


def _readable(result: wire.ServerResult) -> wire.ServerResult:
    """Return the result, where it is an error without characters that can't be sent: what failed stays an error."""
    if isinstance(result.root, wire.CallToolResult) and result.root.isError:
        for part in result.root.content:
            if isinstance(part, wire.TextContent):
                part.text = part.text.encode(errors="replace").decode()
    return result
