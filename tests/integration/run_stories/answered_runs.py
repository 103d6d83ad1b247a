"""Seventeen runs in which everything was answered, most of them with something that looks like a failure: no cause."""

from tests.integration.run_stories.scripted_servers import HANGS, Step, fails, gives, says
from tests.integration.run_stories.story import (
    BANK,
    DESK,
    GARBAGE,
    LOOK,
    LOOK_PLAN,
    SERVER_ERROR,
    TILL,
    VAULT,
    Act,
    Story,
    use,
)
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task, verdict

LOOKED_TWICE = Answer("First [1], second [2].")
PAYMENTS = "Failed: 3 payments. Error codes: denied, timeout, 404. Nothing else was rejected."
FAILED_JOBS = {"status": "error", "errors": 4, "failed": ["mail", "index"], "exception": "TimeoutError", "code": 500}

ANSWERED = (
    Story(
        "failures-were-asked-for",
        "Which payments failed last night, and why?",
        servers={"desk.look": (says(PAYMENTS),)},
        answers=(Answer("Three payments failed: denied, timeout, not found [1]."),),
    ),
    Story(
        "error-words-in-other-languages",
        "¿Qué sensores fallaron en Osaka?",
        plans=(decision(task("t1", DESK, "sensores"), task("t2", DESK, "nombres")),),
        agents={"t1": LOOK, "t2": (use("find"),)},
        servers={
            "desk.look": (says("エラー 3 件。失敗しました。Fehler: Zugriff verweigert."),),
            "desk.find": (says("No encontrado: sensor 4. Error interno: sensor 6. Tiempo agotado: sensor 8."),),
        },
        answers=(Answer("Fallaron tres sensores [1]: 4, 6 y 8 [2]."),),
    ),
    Story(
        "structured-report-of-errors",
        "How did the nightly jobs go?",
        servers={"desk.look": (gives(**FAILED_JOBS),)},
    ),
    Story(
        "second-attempt-approved",
        "What does the rent cost?",
        agents={"t1": (use("look", "heating"), use("look", "rent"))},
        verdicts=(verdict("REJECTED", "That is the heating, which failed to be what was asked."), verdict("APPROVED")),
        servers={"desk.look": (says("The heating costs 80."), says("The rent costs 900."))},
        made={"desk.look": 2},
    ),
    Story(
        "fixed-by-the-reviewer",
        "What is the phone number of the porter?",
        verdicts=(verdict("FIXED", "An error in the format.", refined="The porter has 555-0101."), verdict("APPROVED")),
        servers={"desk.look": (says("porter 5550101 (invalid format)"),)},
    ),
    Story(
        "busy-server-answered-the-second-try",
        "What is the weather in Bergen?",
        plans=(decision(task("t1", "mcp_agent_flaky", "weather")),),
        agents={"t1": (use("fetch"),)},
        servers={"flaky.fetch": (Step(http_status=503), says("Rain."))},
    ),
    Story(
        "tool-error-corrected-by-the-agent",
        "Who is customer 21?",
        agents={"t1": (use("find", "12"), use("find", "21"))},
        servers={"desk.find": (fails("customer 12 not found"), says("Customer 21 is Omar Haddad."))},
        made={"desk.find": 2},
    ),
    Story(
        "wrong-arguments-corrected",
        "Who is customer 5?",
        agents={"t1": (use("find", 5), use("find", "5"))},
        servers={"desk.find": (says("Customer 5 is Ada Lund."),)},
        made={"desk.find": 1},
    ),
    Story(
        "unknown-tool-and-invalid-params-corrected",
        "What is in locker 3?",
        agents={"t1": (calls(("open_locker", {"number": 3}), ("find", {"what": "locker"})), use("look", "locker 3"))},
        servers={"desk.find": (Step(error={"code": -32602, "message": "no"}),), "desk.look": (says("A hat."),)},
    ),
    Story(
        "clarification-answered",
        "Is the disk fine?",
        plans=(decision(question="Which disk?", options=["the first", "the second"]), LOOK_PLAN),
        servers={"desk.look": (says("The second disk is fine."),)},
        people=(Act("clarification", {"answer": "the second"}),),
    ),
    Story(
        "clarification-expired-and-assumed",
        "How full is the tank?",
        plans=(decision(question="Which tank?"), LOOK_PLAN),
        servers={"desk.look": (says("The oil tank is half full."),)},
        people=(Act("clarification", expires=True),),
    ),
    Story(
        "approval-given",
        "Transfer 20 to the gardener.",
        plans=(decision(task("t1", VAULT, "transfer 20")),),
        agents={"t1": (use("transfer"),)},
        servers={"vault.transfer": (says("20 transferred. Refused before: 0."),)},
        people=(Act("approval_required", {"approved": True}),),
        made={"vault.transfer": 1},
    ),
    Story(
        "direct-reply-about-errors",
        "What does HTTP 404 mean, and what is a timeout error?",
        plans=(decision(reply="404: not found. A timeout error: no answer in time, the request failed."),),
    ),
    Story(
        "cached-read",
        "What is the exchange rate, in both offices?",
        plans=(decision(task("t1", DESK, "rate here"), task("t2", DESK, "rate there", after=["t1"])),),
        agents={"t1": (use("rate"),), "t2": (use("rate"),)},
        servers={"desk.rate": (says("1.08"), fails("rate limit exceeded"))},
        answers=(LOOKED_TWICE,),
        made={"desk.rate": 1},
    ),
    Story(
        "second-part-skipped-on-purpose",
        "Remind everybody whose invoice is overdue.",
        plans=(decision(task("t1", DESK, "overdue"), task("t2", "generalist", "write reminders", after=["t1"])),),
        agents={"t1": LOOK, "t2": (Answer("Skipped: nothing is overdue, so no reminder was sent and none failed."),)},
        servers={"desk.look": (says("0 invoices are overdue, 2 reminders could not be delivered in May."),)},
        answers=(LOOKED_TWICE,),
    ),
    Story(
        "doubt-settled-and-budget-raised",
        "Pay the invoice of the printer.",
        plans=(decision(task("t1", BANK, "pay it")),),
        agents={"t1": (use("pay"),)},
        servers={"bank.pay": (HANGS,)},
        people=(
            Act("budget_required", {"tokens": 10_000}),
            Act("in_doubt", {"resolution": "done", "result": "The bank shows the payment."}),
        ),
        limits={"tokens": 20},
        made={"bank.pay": 1},
    ),
    Story(
        "second-agent-and-stumbling-model",
        "Is the hall free on Friday?",
        plans=(SERVER_ERROR, GARBAGE, decision(task("t1", TILL, "hall")), decision(task("t1", DESK, "hall"))),
        agents={"t1": (*[Answer("I can't look at calendars.")] * 2, use("look"))},
        verdicts=(GARBAGE, verdict("APPROVED")),
        answers=(SERVER_ERROR,),
        servers={"desk.look": (says("The hall is free. Booking attempts denied: 1."),)},
    ),
)
