"""The model that a person at a terminal chooses for a new folder; it is asked once before it is used."""

from dataclasses import dataclass
from getpass import getpass
from typing import Final

import typer
from pydantic import SecretStr

from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.output import print_line, progress
from starling.app.doctor.finding import Diagnostic
from starling.app.doctor.model_endpoints import ask_router
from starling.core.errors import StarlingError
from starling.core.settings.schema import Settings
from starling.infra.llm.model_selection import OFFLINE, named_models, pulled_models

_SECONDS: Final = 60.0  # a local model may have to be loaded


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model, the address of its provider where that is not the one in force, and a key."""

    model: str
    address: str = ""
    key: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """What belongs into the settings file."""
        return {"model": self.model} | ({"openai_base_url": self.address} if self.address else {})

    def within(self, settings: Settings) -> Settings:
        """Return the settings with this choice."""
        key = {"openai_api_key": SecretStr(self.key)} if self.key else {}
        address = {"openai_base_url": self.address} if self.address else {}
        return settings.model_copy(update={"model": (self.model,), **address, **key})


def chosen_model(settings: Settings) -> ModelChoice | None:
    """Ask until a model answers, or a person wants it all the same; None where the environment names one."""
    if named_models(settings):
        return None
    while True:
        choice = _asked(settings)
        if choice is None:
            continue
        if choice.model == OFFLINE:
            return choice
        with progress(f"Asking {choice.model} for one word …"):
            found = run_until_stopped(_tried(choice.within(settings)))
        if found.state != "problem":
            print_line(found.message)
            return choice
        print_line(f"{found.message} {found.remedy}".rstrip(), "yellow")
        if typer.confirm("Use it all the same?"):
            return choice


async def _tried(settings: Settings) -> Diagnostic:
    try:
        return await ask_router(settings, _SECONDS)
    except StarlingError as error:
        return Diagnostic("model", "problem", error.message, error.remedy)


def _asked(settings: Settings) -> ModelChoice | None:
    pulled = sorted(run_until_stopped(pulled_models(settings.ollama_base_url)) or ())
    print_line("Which model answers?", "bold")
    print_line("  1  one of OpenAI, or of another provider that speaks its protocol: needs a key")
    local = ", ".join(pulled) or f"none answers at {settings.ollama_base_url} and has a model"
    print_line(f"  2  one of Ollama on this machine: {local}")
    print_line("  3  none, only fixed rules: for a first look, needs neither key nor network")
    match typer.prompt("Number", default="2" if pulled else "1").strip():
        case "1":
            try:
                key = getpass("Key (not shown): ").strip()  # unlike a prompt of typer's, asks once echoing is off
            except EOFError:
                raise typer.Abort from None
            address = typer.prompt("Address", default=settings.openai_base_url).strip()
            name = typer.prompt("Model", default="gpt-4.1-mini").strip()
            return ModelChoice(f"openai:{name}", "" if address == settings.openai_base_url else address, key)
        case "2":
            name = typer.prompt("Model", default=next(iter(pulled), "llama3.2:3b")).strip()
            return ModelChoice(f"ollama:{name}")
        case "3":
            return ModelChoice(OFFLINE)
        case _:
            return None
