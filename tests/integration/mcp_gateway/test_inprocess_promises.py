"""What Python functions and FastMCP servers in the platform's process may do, and what comes of it."""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mcp_gateway.configuration.servers import ServerConfig, server_of
from mcp_gateway.gateway import Gateway
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.tools import ServerListing, ToolCall, ToolOutcome
from tests.support.gateway_harness import GatewayHarness, call, listed

HEAD = "import asyncio, threading, time\nfrom typing import Literal\nimport starling\n"
FUNCTIONS = '''
done = []

@starling.tool
def double(n: int, by: Literal[2, 3] = 2) -> int:
    """Multiply a number."""
    done.append(n)
    return n * by

@starling.tool
async def later(n: int) -> str:
    """Say it later."""
    await asyncio.sleep(0.01)
    return f"{n} later"

@starling.tool
def where() -> list[str]:
    return [threading.current_thread().name]

@starling.tool
def raises(why: str) -> str:
    raise ValueError(why)

@starling.tool
async def raises_later(why: str) -> str:
    raise KeyError(why)

@starling.tool
def leaves() -> str:
    raise SystemExit(3)

@starling.tool
async def leaves_later() -> str:
    raise SystemExit(3)

@starling.tool
def interrupts() -> str:
    raise KeyboardInterrupt

@starling.tool
async def interrupts_later() -> str:
    raise KeyboardInterrupt

@starling.tool
async def cancels() -> str:
    raise asyncio.CancelledError

@starling.tool
def recurses() -> str:
    return recurses()

@starling.tool
def odd_message() -> str:
    raise ValueError("\\ud800\\0")

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

@starling.tool
def unprintable() -> str:
    raise Unprintable

@starling.tool
async def groups() -> str:
    raise ExceptionGroup("two", [ValueError("a"), ValueError("b")])

@starling.tool
async def stops() -> str:
    raise StopAsyncIteration

@starling.tool
def blocks(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"

@starling.tool
async def blocks_all(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"

gate = threading.Event()

@starling.tool
def waits() -> str:
    gate.wait(60)
    return "waited"

@starling.tool
async def never() -> str:
    await asyncio.Event().wait()
    return "impossible"

async def _in_background():
    raise RuntimeError("nobody waits for me")

@starling.tool
async def forgets() -> str:
    asyncio.get_running_loop().create_task(_in_background())
    return "forgot"

@starling.tool
def prints() -> str:
    print("{not a message}", flush=True)
    return "printed"

@starling.tool(name="renamed", description="Another name.")
def original() -> str:
    return "renamed"

def unmarked() -> str:
    return "never"
'''
RETURNS = [
    "object()",
    "{1, 2}",
    'float("nan")',
    'float("inf")',
    'b"\\xff\\x00"',
    '"\\ud800"',
    "10**5000",
    "lambda: 1",
    "(n for n in range(3))",
    "_cycle()",
    "threading.Lock()",
    "{(1, 2): 3}",
    '{"a": {"b": object()}}',
    '"x" * 17 * 2**20',
    "_deep()",
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ServerConfig]:
    """What installs a package with an entry point, and returns the server of it."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(source: str, target: str = "", head: str = HEAD, **options: Any) -> ServerConfig:
        name = f"promised_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(head + source, "utf-8", "surrogatepass")
        distribution = tmp_path / f"{name}-1.0.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (distribution / "entry_points.txt").write_text(f"[starling.servers]\n{name} = {name}{target}\n")
        importlib.invalidate_caches()
        return server_of({"type": "inprocess", "entry_point": name, "x-starling": options})

    return install


type Install = Callable[..., ServerConfig]


def names(listing: ServerListing) -> set[str]:
    return {tool.name for tool in listing.tools}


async def test_marked_functions_are_tools_with_schema_and_description(
    harness: GatewayHarness, installed: Install
) -> None:
    config = installed(FUNCTIONS)

    listing = await harness.listed(config)
    [double] = [tool for tool in listing.tools if tool.name == "double"]

    assert listing.state == "ready"
    assert names(listing) >= {"double", "later", "renamed"}
    assert names(listing) & {"original", "unmarked", "done"} == set()
    assert (double.effect, double.description) == ("unsafe", "Multiply a number.")
    assert double.input_schema["required"] == ["n"]
    module = sys.modules[str(config.document["entry_point"])]
    assert (module.double(4), module.original()) == (8, "renamed")


async def test_functions_are_called_with_and_without_async(harness: GatewayHarness, installed: Install) -> None:
    async with harness.listing(installed(FUNCTIONS)) as (gateway, listing):
        said = [
            await call(gateway, listing, "double", n=4),
            await call(gateway, listing, "double", n=4, by=3),
            await call(gateway, listing, "later", n=1),
            await call(gateway, listing, "renamed"),
            await call(gateway, listing, "prints"),
            await call(gateway, listing, "forgets"),
        ]
        threads = await call(gateway, listing, "where")
        assert gateway.open_sessions == 1

    assert [outcome.status for outcome in said] == ["succeeded"] * 6
    assert [outcome.text for outcome in said[2:]] == ["1 later", "renamed", "printed", "forgot"]
    assert [str(number) in outcome.text for number, outcome in zip((8, 12), said[:2], strict=True)] == [True] * 2
    assert "MainThread" not in threads.text


@pytest.mark.parametrize("arguments", [{}, {"n": "four"}, {"n": 1.5}, {"n": 1, "by": 4}, {"n": None}])
async def test_arguments_against_the_hints_do_not_reach_the_function(
    harness: GatewayHarness, installed: Install, arguments: dict[str, Any]
) -> None:
    config = installed(FUNCTIONS)

    async with harness.listing(config) as (gateway, listing):
        outcome = await call(gateway, listing, "double", **arguments)

    assert (outcome.status, outcome.code) == ("failed", "invalid_arguments")
    assert sys.modules[str(config.document["entry_point"])].done == []


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("raises", {"why": "the shelf is empty"}, "the shelf is empty"),
        ("raises_later", {"why": "no key"}, "no key"),
        ("leaves", {}, ""),
        ("leaves_later", {}, ""),
        ("interrupts", {}, ""),
        ("interrupts_later", {}, ""),
        ("cancels", {}, ""),
        ("recurses", {}, ""),
        ("odd_message", {}, ""),
        ("unprintable", {}, ""),
        ("groups", {}, ""),
        ("stops", {}, ""),
    ],
)
async def test_whatever_a_function_raises_is_the_error_of_its_tool(
    harness: GatewayHarness, installed: Install, tool: str, arguments: dict[str, Any], words: str
) -> None:
    async with harness.listing(installed(FUNCTIONS)) as (gateway, listing), asyncio.timeout(60):
        outcome = await call(gateway, listing, tool, seconds=10, **arguments)
        after = [await call(gateway, listing, "double", n=1), await call(gateway, listing, "later", n=1)]

    assert (outcome.status, outcome.code) == ("failed", "tool_error"), outcome
    assert words in outcome.text
    assert "Traceback" not in outcome.text
    assert [each.status for each in after] == ["succeeded"] * 2


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("hint", ["", " -> object", " -> dict"])
async def test_what_is_not_json_is_an_outcome_and_ends_nothing(
    harness: GatewayHarness, installed: Install, hint: str, *, asynchronous: bool
) -> None:
    functions = "".join(
        f"@starling.tool\n{'async ' if asynchronous else ''}def gives{number}(){hint}:\n    return {value}\n\n"
        for number, value in enumerate(RETURNS)
    )
    source = f"""
def _cycle():
    found = {{}}
    found["itself"] = found
    return found

def _deep():
    found = []
    for _ in range(5_000):
        found = [found]
    return found

{functions}
@starling.tool
def fine() -> str:
    return "fine"
"""
    tools = [f"gives{number}" for number, _ in enumerate(RETURNS)]
    async with harness.listing(installed(source)) as (gateway, listing):
        assert names(listing) == {*tools, "fine"}
        for tool, value in zip(tools, RETURNS, strict=True):
            outcome = await call(gateway, listing, tool, seconds=30)
            after = await call(gateway, listing, "fine")

            assert outcome.status in ("succeeded", "failed"), value
            assert outcome.observation == "invalid_result" or "2**20" not in value
            assert outcome.text, value
            outcome.text.encode()
            json.dumps(outcome.data, allow_nan=False)
            assert after.text == "fine", value


async def _blocks(gateway: Gateway, listing: ServerListing, tool: str, pause: float) -> ToolOutcome:
    definition = next(each for each in listing.tools if each.name == tool)
    return await gateway.call(
        ToolCall(new_id(), "run", "t1", definition, {"seconds": pause}), Deadline(SystemClock(), 20)
    )


@pytest.mark.parametrize("tool", ["blocks", "blocks_all"])
async def test_blocking_function_is_given_up_in_time_and_the_loop_of_the_platform_goes_on(
    harness: GatewayHarness, installed: Install, tool: str
) -> None:
    async with harness.listing(installed(FUNCTIONS, timeout=1)) as (gateway, listing):
        await call(gateway, listing, "double", n=1)
        loop = asyncio.get_running_loop()
        began, longest = loop.time(), 0.0
        asking = loop.create_task(_blocks(gateway, listing, tool, 4.0))
        while not asking.done():
            before = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - before)
        outcome, seconds = await asking, loop.time() - began

    assert (outcome.status, outcome.code) == ("failed", "timeout")
    assert (seconds < 3.8, longest < 3) == (True, True)  # the function blocks for four seconds


async def test_functions_that_never_return_leave_threads_for_other_servers(
    harness: GatewayHarness, installed: Install
) -> None:
    config = installed(FUNCTIONS, max_calls=64, tools={"waits": {"timeout": 1}})
    async with harness.listing(config) as (gateway, listing):
        hung = await asyncio.gather(*(call(gateway, listing, "waits") for _ in range(45)))
        async with harness.listing(installed(FUNCTIONS)) as (other, there):
            after = await call(other, there, "double", n=1, seconds=10)
        sys.modules[str(config.document["entry_point"])].gate.set()

    assert {outcome.code for outcome in hung} == {"timeout"}
    assert after.status == "succeeded"


async def test_import_that_hangs_holds_up_no_other_server(harness: GatewayHarness, installed: Install) -> None:
    async with harness.listing(installed(FUNCTIONS)) as (gateway, listing):
        slow = installed("import time\ntime.sleep(4)", head="")
        importing = asyncio.ensure_future(harness.listed(slow, server_start_seconds=2))
        await asyncio.sleep(0.5)
        async with asyncio.timeout(3):  # the import takes half a second more
            said = await call(gateway, listing, "later", n=1)
        degraded = await importing

    assert (said.status, degraded.state) == ("succeeded", "degraded")


async def test_errors_of_functions_are_not_written_past_the_log(
    harness: GatewayHarness, installed: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    async with harness.listing(installed(FUNCTIONS)) as (gateway, listing):
        for tool in ("raises", "raises_later"):
            await call(gateway, listing, tool, why="sk-proj-4f9vNq7RZk2LmX8sTb1Y")

    assert "sk-proj" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "second",
    [
        '@starling.tool(name="same")\ndef another() -> str:\n    return "two"\n',
        '@starling.tool(name="Same")\ndef another() -> str:\n    return "two"\n',
    ],
)
async def test_two_functions_of_one_name_are_not_silently_one(
    harness: GatewayHarness, installed: Install, second: str
) -> None:
    source = f"""
@starling.tool(name="same")
def one() -> str:
    return "one"

{second}
@starling.tool
def fine() -> str:
    return "fine"
"""
    listing = await harness.listed(installed(source))

    equal = 'name="same")' in second
    assert listing.state == ("degraded" if equal else "ready")
    assert "'same'" in listing.error
    assert len(names(listing) & {"same", "Same"}) == (0 if equal else 1)


@pytest.mark.parametrize(
    "odd",
    [
        "@starling.tool\ndef odd(*things: int) -> str:\n    return ''\n",
        "@starling.tool\ndef odd(**things: int) -> str:\n    return ''\n",
        "@starling.tool\ndef odd(a, /) -> str:\n    return ''\n",
        "@starling.tool\ndef odd(lock: threading.Lock) -> str:\n    return ''\n",
        "@starling.tool\ndef odd(a: 'NoSuchName') -> str:\n    return ''\n",
        "@starling.tool(name='rm -rf; x')\ndef odd() -> str:\n    return ''\n",
        "@starling.tool(name='find_tools')\ndef odd() -> str:\n    return ''\n",
        "@starling.tool\nclass Odd:\n    pass\n",
    ],
)
async def test_function_that_cannot_be_a_tool_is_named_and_spoils_no_other(
    harness: GatewayHarness, installed: Install, odd: str
) -> None:
    source = f"{odd}\n@starling.tool\ndef fine() -> str:\n    return 'fine'\n"

    async with harness.listing(installed(source)) as (gateway, listing):
        said = [await call(gateway, listing, "fine")] if "fine" in names(listing) else []

    assert listing.state in ("ready", "degraded")
    assert [outcome.text for outcome in said] == ["fine"] if listing.state == "ready" else bool(listing.error)


@pytest.mark.parametrize("package", ["fastmcp", "mcp.server.fastmcp"])
async def test_fastmcp_server_is_called_and_its_faults_are_those_of_its_tools(
    harness: GatewayHarness, installed: Install, package: str
) -> None:
    source = f"""
import asyncio
from {package} import FastMCP
server = FastMCP("garden", instructions="Knows the garden.")

@server.tool()
async def grows(bed: str) -> str:
    return f"{{bed}}: beans"

@server.tool()
def fails() -> str:
    raise ValueError("hail")

@server.tool()
def leaves() -> str:
    raise SystemExit(3)

@server.tool()
async def leaves_later() -> str:
    raise SystemExit(3)

@server.tool()
def odd() -> object:
    return object()
"""
    async with harness.listing(installed(source, ":server", head="")) as (gateway, listing), asyncio.timeout(60):
        grows = await call(gateway, listing, "grows", bed="north")
        failed = [await call(gateway, listing, tool, seconds=5) for tool in ("fails", "leaves", "leaves_later")]
        odd = await call(gateway, listing, "odd", seconds=5)
        again = await call(gateway, listing, "grows", bed="south")

    assert (listing.description, grows.text, again.text) == ("Knows the garden.", "north: beans", "south: beans")
    assert [(outcome.status, outcome.code) for outcome in failed] == [("failed", "tool_error")] * 3
    assert "hail" in failed[0].text
    assert odd.status in ("succeeded", "failed")


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit", "KeyboardInterrupt"])
async def test_lifespan_of_a_fastmcp_server_that_fails_degrades_it(
    harness: GatewayHarness, installed: Install, error: str
) -> None:
    source = f"""
from contextlib import asynccontextmanager
from fastmcp import FastMCP

@asynccontextmanager
async def life(server):
    raise {error}("no water")
    yield

server = FastMCP("garden", lifespan=life)
"""
    async with asyncio.timeout(60):
        listing = await harness.listed(installed(source, ":server", head=""), server_start_seconds=3)

    assert (listing.state, bool(listing.error)) == ("degraded", True)


async def test_one_function_under_two_names_is_one_tool(harness: GatewayHarness, installed: Install) -> None:
    source = "@starling.tool\ndef one() -> str:\n    return 'one'\n\nalias = one\n"

    listing = await harness.listed(installed(source))

    assert (listing.state, names(listing)) == ("ready", {"one"})


async def test_looking_for_marked_functions_runs_no_other_code(harness: GatewayHarness, installed: Install) -> None:
    source = """
touched = []

class Proxy:
    def __getattr__(self, name):
        touched.append(name)
        raise RuntimeError("outside of a request")

class Desk:
    proxy = Proxy()

    @property
    def connection(self):
        touched.append("connection")
        raise RuntimeError("no database")

    @starling.tool
    def first(self) -> str:
        return "first"

    @staticmethod
    @starling.tool
    def second() -> str:
        return "second"

    @classmethod
    @starling.tool
    def third(cls) -> str:
        return cls.__name__

desk = Desk()
"""
    config = installed(source, ":desk")

    async with harness.listing(config) as (gateway, listing):
        said = [(await call(gateway, listing, tool)).text for tool in ("first", "second", "third")]

    assert names(listing) == {"first", "second", "third"}
    assert said == ["first", "second", "Desk"]
    assert sys.modules[str(config.document["entry_point"])].touched == []


async def test_two_servers_and_two_gateways_use_one_package_at_once(
    harness: GatewayHarness, installed: Install
) -> None:
    config = installed(FUNCTIONS)

    async with harness.listing(config) as (one, listing), harness.gateway() as other:
        elsewhere = await listed(other, config, "b")
        said = await asyncio.gather(
            *(call(one, listing, "later", n=n) for n in range(5)),
            *(call(other, elsewhere, "later", n=n) for n in range(5)),
        )

    assert [outcome.text for outcome in said] == [f"{n} later" for n in range(5)] * 2
