"""The model that a person at a terminal chooses for a new folder; it is asked for one word before it is stored."""

from getpass import getpass

import typer

from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_line, progress
from starling.core.errors import StarlingError
from starling.core.llm import Message, ModelRequest, ModelRole
from starling.core.settings.loading import load_settings
from starling.core.settings.schema import Settings
from starling.infra.llm.factory import open_models
from starling.infra.llm.model_selection import OFFLINE, named_models, pulled_models

_FILE = "starling.yaml"
_REQUEST = ModelRequest(
    ModelRole.ROUTER,
    (Message("user", "Answer with the one word: ok"),),
    max_tokens=16,
    timeout=60.0,  # a local model may have to be loaded
)


def chosen_model() -> dict[str, str]:
    """Return settings with a model that answers, or that a person wants all the same; none where variables name one."""
    settings = load_settings({}, _FILE)
    chosen = {} if named_models(settings) else _asked(settings)
    while chosen and chosen["model"] != OFFLINE:
        with progress(f"Asking {chosen['model']} for one word …"):
            fault = run_until_stopped(_fault(chosen))
        if not fault:
            print_line(f"{chosen['model']} answers.")
            break
        print_line(fault, "yellow")
        if typer.confirm("Use it all the same?"):
            break
        chosen = _asked(settings)
    return chosen


async def _fault(chosen: dict[str, str]) -> str:
    try:
        async with open_models(load_settings({}, _FILE, **chosen)) as models:
            await models.respond(_REQUEST)
    except StarlingError as error:
        return f"{error.message} {error.remedy or 'Check the endpoint and the key.'}"
    return ""


def _asked(settings: Settings) -> dict[str, str]:
    pulled = sorted(run_until_stopped(pulled_models(settings.ollama_base_url)) or ())
    print_line("Which model answers?", "bold")
    print_line("  1  one of OpenAI, or of another provider that speaks its protocol: needs a key")
    local = ", ".join(pulled) or f"none answers at {settings.ollama_base_url} and has a model"
    print_line(f"  2  one of Ollama on this machine: {local}")
    print_line("  3  none, only fixed rules: for a first look, needs neither key nor network")
    number = typer.prompt("Number", default=2 if pulled else 1)
    if number == 1:
        try:  # unlike a prompt of typer's, it asks once echoing is off
            key = {} if settings.openai_api_key else {"openai_api_key": getpass("Key (not shown): ").strip()}
        except EOFError:
            raise typer.Abort from None
        address = {"openai_base_url": typer.prompt("Address", default=settings.openai_base_url)}
        return {"model": f"openai:{typer.prompt('Model', default='gpt-4.1-mini')}", **address, **key}
    if number == 2:
        return {"model": f"ollama:{typer.prompt('Model', default=next(iter(pulled), 'llama3.2:3b'))}"}
    return {"model": OFFLINE} if number == 3 else _asked(settings)
