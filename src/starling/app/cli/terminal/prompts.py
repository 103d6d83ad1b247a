"""What a person types at a terminal: lines, confirmations, and answers to what a run waits for."""

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

import typer

from starling.app.cli.terminal.output import diagnostics, json_text, print_line, results, write

_READ_BYTES = 64
RESOLUTIONS: Final = ("done", "not_done", "give_up")
type Answer = Mapping[str, Any]


def has_person() -> bool:
    """Return whether a person can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and results().is_terminal


def confirmed(question: str, *, yes: bool, quiet: bool, otherwise: str) -> bool:
    """Return whether something is to be done: with `yes`, or where a person at a terminal says so.

    Where nobody can be asked, `otherwise` is printed on stderr; with `quiet` nobody is asked and nothing is printed.
    """
    if yes or quiet:
        return yes
    if not (sys.stdin.isatty() and diagnostics().is_terminal):
        write(diagnostics(), f"{otherwise}\n")
        return False
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-D
        return False


def read_line(prompt: str, *, typed: TextIO | None = None) -> str:
    """Show a prompt and return the line that is typed, without its end. Raises EOFError for Ctrl-D.

    Call it in the main thread. A signal runs its handler at once, whenever it comes. `input` misses one that comes
    between its prompt and its read: that read isn't interrupted, and the handler runs after the next line only.
    """
    source: TextIO = typed or sys.stdin
    sys.stdout.write(prompt)
    sys.stdout.flush()
    signalled, writing = os.pipe()  # can be read once a signal has come, be it before `select` waits for it
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        while source not in select.select([source, signalled], [], [])[0]:
            os.read(signalled, _READ_BYTES)
    finally:
        signal.set_wakeup_fd(before)
        os.close(signalled)
        os.close(writing)
    line = source.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@dataclass(frozen=True, slots=True)
class FixedAnswers:
    """Answers without asking: `approve` decides on calls; questions get no answer, other requests only a refusal."""

    approve: bool

    def answer(self, kind: str, _: Mapping[str, Any]) -> Answer | None:
        """Return the answer to an interrupt, None where it takes a person."""
        if kind == "approval_required":
            return _resolved(approved=self.approve)
        if not self.approve and kind in ("clarification", "budget_required"):
            return _withdrawn()
        return None


@dataclass(frozen=True, slots=True)
class Prompts:
    """Asks the person at the terminal. `read` shows a prompt and returns a line; it raises EOFError for Ctrl-D."""

    read: Callable[[str], str] = read_line

    def answer(self, kind: str, data: Mapping[str, Any]) -> Answer | None:
        """Return the answer to an interrupt, None where the person leaves it open with Ctrl-D."""
        ask = {
            "approval_required": self._approval,
            "clarification": self._clarification,
            "budget_required": self._budget,
            "in_doubt": self._in_doubt,
        }[kind]
        try:
            return ask(data)
        except EOFError:
            print_line()
            return None

    def _approval(self, data: Mapping[str, Any]) -> Answer:
        while True:
            match self.read("Approve? [y/N/show] ").strip().lower():
                case "y" | "yes":
                    return _resolved(approved=True)
                case "" | "n" | "no":
                    return _resolved(approved=False)
                case "s" | "show":
                    print_line(json_text(data["call"], 2))
                case _:
                    print_line("Type y to make the call, n to refuse it, or show to see it whole.")

    def _clarification(self, data: Mapping[str, Any]) -> Answer:
        options: Sequence[str] = data["responseSchema"].get("properties", {}).get("answer", {}).get("examples", [])
        for number, option in enumerate(options, start=1):
            print_line(f"  {number}. {option}")
        choice = "its number, or " if options else ""
        text = self.read(f"Your answer ({choice}Enter to let the run assume one): ").strip()
        if text.isascii() and text.isdigit() and 0 < int(text) <= len(options):
            text = options[int(text) - 1]
        return _resolved(answer=text) if text else _withdrawn()

    def _budget(self, _: Mapping[str, Any]) -> Answer:
        while True:
            text = self.read("How many more tokens? [number/N] ").strip().lower().replace(",", "").replace("_", "")
            if text in ("", "n", "no"):
                return _withdrawn()
            if text.isascii() and text.isdigit() and int(text) > 0:
                return _resolved(tokens=int(text))
            print_line("Type a number such as 10000, or n to answer with what was found so far.")

    def _in_doubt(self, _: Mapping[str, Any]) -> Answer | None:
        while True:
            text = self.read("Was the call made? [done/not_done/give_up, Enter: decide later] ").strip().lower()
            if not text:
                return None
            if text in RESOLUTIONS:
                return _resolved(resolution=text)
            print_line("Type done, not_done or give_up, or press Enter to decide later.")


def _resolved(**payload: Any) -> Answer:
    return {"status": "resolved", "payload": payload}


def _withdrawn() -> Answer:
    return {"status": "cancelled", "payload": {}}
