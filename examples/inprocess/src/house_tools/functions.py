"""Two functions as tools. Their type hints and docstrings are what agents are shown."""

from pathlib import Path
from tempfile import gettempdir

import starling

_NOTES = Path(gettempdir()) / "house-notes.txt"


@starling.tool
def convert_temperature(celsius: float) -> str:
    """Convert a temperature from degrees Celsius to degrees Fahrenheit."""
    return f"{celsius:g} °C are {celsius * 9 / 5 + 32:g} °F"


@starling.tool(name="leave_note", description="Write a note on the house's notes.")
def add_note(text: str) -> str:
    with _NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")
    return f"noted: {text}"


def clean() -> None:
    """Remove all notes; it isn't marked, so no agent can call it."""
    _NOTES.unlink(missing_ok=True)
