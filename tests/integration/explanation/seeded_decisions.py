"""Runs that fail by what a model decides: the order of a plan, a skill, a verdict, words that can't be read, a team."""

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from tests.support.model_script import Answer
from tests.support.platform import RunStream, calls, decision, task, verdict
from tests.support.seeded_runs import APPROVED, ARCHIVE, DEPOT, PRINTING, TRAVEL, SeededRun, Stage

_PERSONA = Persona(role="clerk", goal="look after things")


def _member(name: str, server: str, *tools: str) -> Member:
    return Member(
        name=name, persona=_PERSONA, server=server, tools=tuple(f"{server}.{tool}" for tool in tools), runtime="native"
    )


_ROOMS = StarSpec(
    name="caretakers",
    purpose="Looks after rooms.",
    members=(_member("thermometer", "depot", "temperature"), _member("writer", "archive", "write_document")),
)
_TRIPS = StarSpec(
    name="tripmakers",
    purpose="Prepares trips.",
    members=(_member("gatekeeper", "travel", "gate"), _member("booker", "travel", "book")),
)


async def _read_before_it_is_written(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.fixed("hall")
    plan.task(
        "summarise",
        ARCHIVE,
        "Read the minutes of Monday, document minutes-monday.",
        calls(("read_document", {"name": "minutes-monday"})),
        after=["gate"],
    )
    write = calls(("write_document", {"name": "minutes-monday", "text": "All were there."}))
    plan.task(
        "record", ARCHIVE, "Write the minutes of Monday, document minutes-monday.", write, after=["hall", "background"]
    )
    plan.slow("background", after=["gate"])
    plan.give(reply="The minutes are written [4], but could not be read.")
    return await stage.ask()


async def _copied_after_it_was_deleted(stage: Stage) -> RunStream:
    plan = stage.plan()
    write = calls(("write_document", {"name": "tariff-old", "text": "5 per box"}))
    plan.task("draft", ARCHIVE, "Write the old tariff, document tariff-old: 5 per box.", write)
    plan.task(
        "clean_up",
        ARCHIVE,
        "Delete the document tariff-old.",
        calls(("delete_document", {"name": "tariff-old"})),
        after=["draft"],
    )
    plan.warned("paper")
    plan.task(
        "compare",
        ARCHIVE,
        "Read the document tariff-old, to compare it with the new one.",
        calls(("read_document", {"name": "tariff-old"})),
        after=["clean_up", "paper"],
    )
    plan.quick("gate", after=["paper"])
    plan.retried("tea")
    plan.give(reply="The old tariff is deleted [2]; it could not be compared.")
    return await stage.ask()


async def _printer_taken_away(stage: Stage) -> RunStream:
    printed = calls(("print_pages", {"printer": "np-1", "document": "weekly list"}))
    before = stage.plan()
    before.task("print", PRINTING, "Print the weekly list on the north printer.", printed)
    before.quick("gate")
    before.give(reply="It is printed [1].")
    await stage.ask("Print the weekly list in the north.")
    stage.script.rules.clear()

    plan = stage.plan()
    moved = calls(("replace_printer", {"place": "north", "printer": "np-9"}))
    plan.task("move", PRINTING, "Let the printer np-9 stand in the north.", moved)
    plan.fixed("hall")
    plan.rejected_once("gate")
    again = calls(("print_pages", {"printer": "np-1", "document": "monthly list"}))
    plan.task("print", PRINTING, "Print the monthly list on the north printer.", again, after=["move", "hall"])
    plan.slow("background", after=["gate"])
    plan.give(reply="The monthly list is not printed.")
    return await stage.ask()


async def _price_list_of_last_year(stage: Stage) -> RunStream:
    async def noted(name: str, text: str) -> None:
        plan = stage.plan()
        plan.task(
            "write", ARCHIVE, f"Write the document {name}.", calls(("write_document", {"name": name, "text": text}))
        )
        plan.give(reply="Written [1].")
        await stage.ask(f"Write {name}.")
        stage.script.rules.clear()

    await noted("prices-2025", "tea 4, coffee 7")
    learn = stage.plan()
    read = calls(("read_document", {"name": "prices-2025"}))
    learn.task("prices", ARCHIVE, "Say what tea costs by the valid price list.", read)
    learn.give(reply="Tea costs 4 [1].")
    await stage.ask("What does tea cost?")
    stage.script.rules.clear()

    plan = stage.plan()
    gone = calls(("delete_document", {"name": "prices-2025"}))
    plan.task("withdraw", ARCHIVE, "Delete the document prices-2025, which holds no longer.", gone)
    new = calls(("write_document", {"name": "prices-2026", "text": "tea 5, coffee 8"}))
    plan.task("publish", ARCHIVE, "Write the document prices-2026: tea 5, coffee 8.", new)
    plan.retried("count")
    plan.quick("gate", after=["count"])
    plan.task("prices", ARCHIVE, "Say what coffee costs by the valid price list.", read, after=["withdraw", "publish"])
    plan.give(reply="It is not known what coffee costs.")
    return await stage.ask()


async def _skill_that_reads_the_former_list(stage: Stage) -> RunStream:
    listed = {"rates-spring": "lamps 3", "rates-autumn": "lamps 6"}
    before = stage.plan()
    before.task(
        "write",
        ARCHIVE,
        "Write both lists.",
        calls(*(("write_document", {"name": n, "text": t}) for n, t in listed.items())),
    )
    spring = calls(("read_document", {"name": "rates-spring"}))
    before.task("rate", ARCHIVE, "Tell the current rate for lamps.", spring, after=["write"])
    before.give(reply="The rate is 3 [2].")
    await stage.ask("Publish both lists and tell me the rate for lamps.")
    stage.script.rules.clear()

    plan = stage.plan()
    plan.warned("paper")
    plan.slow("background")
    outdated = verdict(
        "REJECTED", "This is the list of spring, which the remembered steps read; since autumn another one holds."
    )
    plan.task("rate", ARCHIVE, "Tell the current rate for big lamps.", spring, after=["paper"], verdicts=[outdated])
    plan.quick("gate")
    plan.fixed("hall", after=["background", "rate"])
    plan.give(reply="The current rate is not known.")
    return await stage.ask()


async def _gate_that_the_reviewer_missed(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.slow("background")
    missed = verdict("REJECTED", "The tool failed: it named no gate for flight IB311.")
    plan.task("gate", TRAVEL, "Find the gate of flight IB311.", calls(("gate", {"flight": "IB311"})), verdicts=[missed])
    plan.fixed("hall", after=["tea"])
    plan.task(
        "sign",
        ARCHIVE,
        "Write the sign with the gate of IB311.",
        calls(("write_document", {"name": "sign", "text": "A07"})),
        after=["gate"],
    )
    plan.give(reply="The gate of IB311 could not be found.")
    return await stage.ask()


async def _number_that_the_reviewer_changed(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.warned("paper")
    plan.quick("flight_gate")
    changed = verdict("FIXED", "Said as a sentence.", refined="There are 71 boxes of tea in the depot.")
    plan.task(
        "tea",
        DEPOT,
        "Count the boxes of tea.",
        calls(("stock", {"item": "tea"})),
        after=["paper"],
        verdicts=[changed, APPROVED],
    )
    plan.rejected_once("gate")
    plan.task(
        "sheet",
        ARCHIVE,
        "Write the stock sheet.",
        calls(("write_document", {"name": "sheet", "text": "tea: 71"})),
        after=["tea"],
    )
    plan.slow("background", after=["gate"])
    plan.give(reply="There are 71 boxes of tea [3], and the sheet says so [5].")
    return await stage.ask()


async def _verdict_in_prose(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.retried("tea", after=["gate"])
    plan.task(
        "lamps",
        DEPOT,
        "Count the lamps.",
        calls(("stock", {"item": "lamps"})),
        verdicts=[Answer("Well, that all looks lovely to me!! ~~~")],
    )
    plan.slow("background")
    plan.task(
        "list",
        ARCHIVE,
        "Write the list of lamps.",
        calls(("write_document", {"name": "lamps", "text": "9"})),
        after=["lamps"],
    )
    plan.give(reply="The gate is C03 [1] and there are 17 boxes of tea [2].")
    return await stage.ask()


async def _agent_without_a_word(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.fixed("hall")
    plan.rejected_once("gate")
    plan.warned("paper", after=["hall"])
    plan.slow("background", after=["gate"])
    plan.task("seats", TRAVEL, "Book 4 seats on flight LH760.", Answer(" \n "), after=["paper"])
    plan.quick("last_gate", after=["seats"])
    plan.give(reply="The hall has 19 degrees [1]. No seats are booked.")
    return await stage.ask()


async def _page_instead_of_a_verdict(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.warned("paper")
    plan.rejected_once("gate")
    page = Answer("<html><body>Session over. Please sign in.</body></html>")
    write = calls(("write_document", {"name": "visitors", "text": "4"}))
    plan.task("visitors", ARCHIVE, "Write down the number of visitors: 4.", write, after=["paper"], verdicts=[page])
    plan.fixed("hall")
    plan.quick("last_gate", after=["visitors"])
    plan.give(reply="The paper is noted down [1].")
    return await stage.ask()


async def _member_with_a_silent_sensor(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.slow("background")
    plan.task("rooms", "caretakers", f"Write down how warm the attic is {stage.run.reference}.", after=["gate"])
    plan.retried("tea")
    plan.task(
        "lamp",
        DEPOT,
        "Reserve a lamp for the attic.",
        calls(("reserve", {"item": "lamps", "boxes": 1})),
        after=["rooms"],
    )
    inside = (
        task("measure", "thermometer", "Measure the attic."),
        task("protocol", "writer", "Write it down.", ["measure"]),
    )
    stage.script.agent("measure", calls(("temperature", {"room": "attic"})))
    stage.script.agent("protocol", calls(("write_document", {"name": "attic", "text": "?"})))
    stage.script.supervisor(decision(*plan.tasks), decision(*inside), decision())
    plan.give(reply="It is not known how warm the attic is.")
    return await stage.ask()


async def _member_that_is_rejected(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.fixed("hall")
    plan.warned("paper")
    plan.task("trip", "tripmakers", f"Book 3 seats on LH454 {stage.run.reference}.", after=["paper", "hall"])
    plan.rejected_once("gate")
    plan.quick("way_back", after=["trip"])
    wrong = verdict("REJECTED", "The task asks for 3 seats on LH454; 2 seats on LH760 were booked.")
    stage.script.reviewer(wrong, of="booking")
    stage.script.agent("booking", calls(("book", {"flight": "LH760", "seats": 2})))
    stage.script.supervisor(
        decision(*plan.tasks), decision(task("booking", "booker", "Book 3 seats on LH454.")), decision()
    )
    plan.give(reply="The seats on LH454 are not booked.")
    return await stage.ask()


DECISION_FAILURES = (
    SeededRun(
        "read-too-early", "bad_plan_order", "Write Monday's minutes and tell me what they say.",
        _read_before_it_is_written, (ARCHIVE, "archive.read_document", "summarise"),
    ),
    SeededRun(
        "deleted-too-early", "bad_plan_order", "Compare the old tariff with the new one, then throw the old one away.",
        _copied_after_it_was_deleted, (ARCHIVE, "archive.read_document", "compare"),
    ),
    SeededRun(
        "printer-taken-away", "stale_skill", "Put the new printer in the north and print the monthly list there.",
        _printer_taken_away, (PRINTING, "printing.print_pages", "print"),
    ),
    SeededRun(
        "last-years-prices", "stale_skill", "Publish the new price list and tell me what coffee costs.",
        _price_list_of_last_year, (ARCHIVE, "archive.read_document", "prices"),
    ),
    SeededRun(
        "spring-rates", "stale_skill", "It is November: what is the rate for big lamps?",
        _skill_that_reads_the_former_list, (ARCHIVE, "archive.read_document", "rate"),
    ),
    SeededRun(
        "missed-gate", "wrong_verdict", "Make a sign with the gate of IB311 and look after the hall.",
        _gate_that_the_reviewer_missed, (TRAVEL, "travel.gate", "gate"),
    ),
    SeededRun(
        "changed-number", "wrong_verdict", "How much tea do we have? Note the paper; put the tea on the stock sheet.",
        _number_that_the_reviewer_changed, (DEPOT, "depot.stock", "tea"),
    ),
    SeededRun(
        "verdict-in-prose", "unreadable_model_output", "Count the lamps, list them, and find my gate.",
        _verdict_in_prose, (DEPOT, "depot.stock", "lamps"),
    ),
    SeededRun(
        "agent-without-a-word", "unreadable_model_output", "Book four seats on LH760 and look after the hall.",
        _agent_without_a_word, (TRAVEL, "seats"),
    ),
    SeededRun(
        "sign-in-page", "unreadable_model_output", "Note that there were four visitors, and note the paper down.",
        _page_instead_of_a_verdict, (ARCHIVE, "archive.write_document", "visitors"),
    ),
    SeededRun(
        "silent-attic", "failed_team_member", "Have the caretakers note the attic's temperature and reserve a lamp.",
        _member_with_a_silent_sensor, ("thermometer", "caretakers", "rooms"), (_ROOMS,),
    ),
    SeededRun(
        "other-flight", "failed_team_member", "Let the trip makers book three seats on LH454.",
        _member_that_is_rejected, ("booker", "tripmakers", "trip"), (_TRIPS,),
    ),
)  # fmt: skip
