"""A run that a person reads along with: its events, their answers to it, and Ctrl-C."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from signal import SIGINT
from typing import Any

from starling.app.cli.run.approve import open_interrupts
from starling.app.cli.run.changes import cancellation_text
from starling.app.cli.stop_signals import StoppedBySignal, finish_before_stop
from starling.app.cli.terminal.interrupt_text import ACTIVATE_TEAM, INTERRUPT_EVENTS, answer_line, run_reference
from starling.app.cli.terminal.output import print_json, print_line, print_note, results
from starling.app.cli.terminal.prompts import FixedAnswers, Prompts, has_person, read_line
from starling.app.cli.terminal.run_display import RunDisplay, TreeDisplay
from starling.client.api import Api
from starling.core.errors import ConflictError, ForbiddenError, InvalidRequestError, StarlingError
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_document.rows import EventRow
from starling.core.run_status import RunStatus


class UnansweredError(StarlingError):
    """A run waits for an answer that this command can't give."""

    code = "answer_needed"


@dataclass(slots=True)
class Conversation:
    """Shows the events of a run and answers what it waits for.

    `status` is the final status, empty where the run ended before the first event. Where there is neither a person nor
    a fixed answer, the command that answers is shown; with `bounded` it isn't waited for then: UnansweredError. So it
    is where the caller's key may not answer, unless `patient`.
    """

    api: Api
    display: RunDisplay
    answers: Prompts | FixedAnswers | None
    as_json: bool = False
    bounded: bool = False
    patient: bool = False
    tenant: str = DEFAULT_TENANT
    run_id: str = ""
    status: str = ""

    def event(self, event: EventRow) -> None:
        """Show an event, and answer it if it asks something that is still open."""
        self.run_id = self.run_id or event.data.get("run_id", "")
        if self.as_json:
            print_json({"seq": event.seq, **event.data})
        else:
            with finish_before_stop():
                self.display.feed(event)
        if event.type == "done":
            self.status = str(event.data["status"])
        if event.type in INTERRUPT_EVENTS and (self.answers is not None or self.bounded):
            unanswered = {item["id"] for item in open_interrupts(self.api, self.run_id)}
            if event.data["id"] in unanswered:
                self._answer(event)

    def show_run_ahead(self) -> None:
        """Show which run has to end before this one begins, if there is one."""
        if not self.as_json and (ahead := self.api.get(f"/v1/runs/{self.run_id}")["behind"]):
            self.display.behind(ahead["run_id"], ahead["status"])

    def _answer(self, event: EventRow) -> None:
        answers, interrupt = self.answers, event.data["id"]
        while answers is not None and (answer := answers.answer(event.type, event.data)) is not None:
            try:
                self.api.post(f"/v1/runs/{self.run_id}/resume", [{**answer, "interruptId": interrupt}])
            except ForbiddenError as error:
                if not self.patient:
                    raise self._unanswered(event, error.message) from None
                print_note(f"{error}")  # somebody else has to answer
            except ConflictError as error:
                print_note(f"{error}")  # it was answered meanwhile
            except InvalidRequestError as error:
                print_note(f"{error}")
                if isinstance(answers, Prompts):
                    continue
            else:
                if isinstance(answers, FixedAnswers) and not self.as_json:
                    print_line("Answered by --yes." if answers.approve else "Answered by --no.")
            return
        if self.bounded and not isinstance(answers, Prompts):
            raise self._unanswered(event, f"Run {self.run_id} waits for an answer. {event.data['message']}")

    def _unanswered(self, event: EventRow, reason: str) -> "UnansweredError":
        run = run_reference(self.run_id, self.tenant)
        call: Mapping[str, Any] = event.data.get("call") or {}
        who = "Only a key with the scope `admin` decides: " if call.get("name") == ACTIVATE_TEAM else ""
        how = f"{who}{answer_line(event.type, event.data, run)}"
        return UnansweredError(reason, f"{how}\n`starling run tail {run}` follows the run.")


def conversation(
    api: Api, fixed: FixedAnswers | None, *, live: bool = True, after: int = 0, **more: Any
) -> Conversation:
    """Return a conversation with these answers, else with those of the person at the terminal, if there is one.

    It shows the run as a tree on a terminal; as lines elsewhere, and where its first events aren't read. Raises
    InvalidRequestError where answers are given but no platform runs that takes them.
    """
    if fixed is not None and api.in_process:
        raise InvalidRequestError(
            "--yes and --no need a running platform.", "Start one with `starling up`, or use `starling run approve`."
        )
    as_json, tenant = more.get("as_json"), more.get("tenant", DEFAULT_TENANT)
    prompts = Prompts() if has_person() and not as_json and not api.in_process else None
    display = RunDisplay(results(), tenant)
    if results().is_terminal and not after and not as_json:
        display = TreeDisplay(results(), tenant, times=live)
    display.run_id = more.get("run_id", "")
    display.commands = fixed is not None or prompts is None
    return Conversation(api, display, fixed or prompts, **more)


def fixed_answers(*, yes: bool, no: bool) -> FixedAnswers | None:
    """Return the answers of `--yes` and `--no`. Raises InvalidRequestError where both are given."""
    if yes and no:
        raise InvalidRequestError("--yes and --no can't be combined.", "Give one of them.")
    return FixedAnswers(approve=yes) if yes or no else None


def follow(talk: Conversation, read: Callable[[], None]) -> None:
    """Read the events of a run. Ctrl-C leaves it running; a person may cancel it instead. Raises StoppedBySignal."""
    with talk.display:
        try:
            read()
        except StoppedBySignal as stopped:
            with finish_before_stop():
                talk.display.freeze()
            if talk.run_id:
                _leave(talk, ask=stopped.signal == SIGINT and not talk.as_json and has_person())
            else:
                sent = "`starling run list` shows whether it took the request."
                print_note(f"\nNo answer of the API yet: {sent}")
            raise


def _leave(talk: Conversation, *, ask: bool) -> None:
    """Say how to read on; cancel the run if the person wants that. A second Ctrl-C ends the command at once."""
    run = run_reference(talk.run_id, talk.tenant)
    try:
        choice = read_line("\nLeave the run working (Enter), or cancel it (c)? ").strip().lower() if ask else ""
    except EOFError:
        choice = ""
    if choice in ("c", "cancel"):
        print_line(cancellation_text(talk.run_id, RunStatus(talk.api.post(f"/v1/runs/{talk.run_id}/cancel")["status"])))
    else:
        print_note(f"\nThe run continues: `starling run tail {run}` follows it.")
