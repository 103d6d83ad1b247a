"""The report that `starling up` prints once everything runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from starling.app.cli.terminal.output import print_json, print_line
from starling.core.tools import ServerListing

_DEFAULT_ADDRESS = "http://127.0.0.1:8000"
_QUESTIONS = {  # by a tool that can answer it
    "get_current_time": "What time is it in Lima?",
    "disk": "How full is this disk?",
    "memory": "How much memory is free?",
}
_ANY_QUESTION = "…"
_OFFLINE = "offline:"


@dataclass(frozen=True, slots=True)
class Started:
    """A started platform: address, model of each role, and the state of its servers."""

    version: str
    address: str
    models: Mapping[str, str]
    epoch: int
    servers: Sequence[ServerListing]
    console: str = ""  # a link that is valid for 60 seconds
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])  # that each part of the start took


def report(started: Started, *, as_json: bool) -> None:
    """Print what runs and what to do next."""
    if as_json:
        seconds = {part: round(seconds, 3) for part, seconds in started.seconds.items()}
        known = {"version": started.version, "address": started.address, "models": dict(started.models)}
        servers = [
            {"name": one.name, "state": one.state, "tools": len(one.tools), "error": one.error, "remedy": one.remedy}
            for one in started.servers
        ]
        print_json({**known, "epoch": started.epoch, "servers": servers, "seconds": seconds})
        return
    print_line(f"Starling {started.version} listens on {started.address}", "bold")
    print_line(f"  model    {_models(started.models)}")
    print_line(f"  epoch    {started.epoch}")
    for number, line in enumerate(_servers(started.servers)):
        print_line(f"  {'' if number else 'servers':<8} {line}")
    if started.seconds:
        parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in started.seconds.items())
        print_line(f"  start    {sum(started.seconds.values()):.1f} s: {parts}")
    tools = {tool.name for server in started.servers for tool in server.tools if server.state == "ready"}
    question = next((question for tool, question in _QUESTIONS.items() if tool in tools), "")
    print_line("Try:" if question else "Ask something that your servers can answer:")
    url = "" if started.address == _DEFAULT_ADDRESS else f"--url {started.address} "
    print_line(f"  starling ask {url}'{question or _ANY_QUESTION}'")
    print_line(f"  curl -N {started.address}/v1/agent/run -H 'content-type: application/json' \\")
    print_line(f'       -d \'{{"input": "{question or _ANY_QUESTION}", "thread_id": "t1"}}\'')
    if started.console:
        print_line(f"The console, for 60 seconds (later `starling console`): {started.console}")
    print_line(f"The API is described at {started.address}/docs. Ctrl-C stops Starling.")


def _models(models: Mapping[str, str]) -> str:
    names = dict.fromkeys(models.values())
    if len(names) > 1:
        return ", ".join(f"{role} {name}" for role, name in models.items())
    name = next(iter(names))
    if name.startswith(_OFFLINE):
        return f"{name}, which follows rules and understands little; set STARLING_MODEL to a language model"
    return name


def _servers(servers: Sequence[ServerListing]) -> Iterator[str]:
    if not servers:
        yield "none yet: `starling server add time -- mcp-server-time`, or start with --mcp-config FILE"
    for server in servers:
        yield f"{server.name}: {server.state}, {len(server.tools)} tools"
        if server.error:
            yield f"  {server.error} {server.remedy}".rstrip()
