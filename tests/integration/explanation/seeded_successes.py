"""Runs that come to a good end, with much of what goes wrong elsewhere made up for."""

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from tests.support.model_script import Answer
from tests.support.platform import RunStream, calls, decision, task, verdict
from tests.support.seeded_runs import (
    APPROVED,
    ARCHIVE,
    BILLING,
    COPIER,
    DEPOT,
    PAYROLL,
    PRINTING,
    TRAVEL,
    SeededRun,
    Stage,
)

_WATCHERS = StarSpec(
    name="watchers",
    purpose="Watches rooms.",
    members=(
        Member(
            name="feeler",
            persona=Persona(role="watcher", goal="watch rooms"),
            server="depot",
            tools=("depot.temperature",),
            runtime="native",
        ),
    ),
)


async def _much_noise(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.retried("tea", after=["gate"])
    plan.rejected_once("other_gate")
    plan.fixed("hall")
    plan.warned("paper", after=["hall"])
    plan.slow("background", after=["tea"])
    plan.give(reply="C03 [1], 17 boxes of tea [2], A07 [3], 19 degrees [4], 260 boxes of paper [5].")
    return await stage.ask()


async def _given_approval_and_tokens(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.warned("paper")
    plan.task("bill", BILLING, "Charge the customer.", calls(("charge", {"what": "customer"})), after=["paper"])
    plan.fixed("hall", after=["bill"])
    plan.slow("background", after=["hall"])
    plan.quick("gate", after=["background"])
    plan.give(reply="All of it is done [1] [2] [3] [4] [5].")
    key = await stage.accept(limits={"tokens": 150})
    await stage.begin(key)
    await stage.answered(key, approved=True)
    await stage.begin(key)
    await stage.answered(key, tokens=10_000)
    return await stage.finish(key)


async def _task_given_anew(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.slow("background")
    many, few = (calls(("reserve", {"item": "lamps", "boxes": boxes})) for boxes in (12, 9))
    plan.task("lamps", DEPOT, "Reserve up to 12 boxes of lamps, as many as there are.", many, many, few)
    plan.fixed("hall")
    plan.retried("tea", after=["hall"])
    again = decision(task("lamps", DEPOT, "Reserve 9 boxes of lamps: there are no more."))
    plan.give(again, reply="There were 9 boxes of lamps; they are reserved [3].")
    return await stage.ask()


async def _team_that_needs_two_attempts(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.warned("paper")
    plan.task("rooms", "watchers", f"Say how warm the porch is {stage.run.reference}.", after=["paper"])
    plan.rejected_once("gate")
    plan.slow("background", after=["rooms"])
    plan.retried("tea")
    wrong = verdict("REJECTED", "This is the hall; the task asks for the porch.")
    stage.script.reviewer(wrong, APPROVED, of="measure")
    stage.script.agent("measure", calls(("temperature", {"room": "hall"})), calls(("temperature", {"room": "porch"})))
    stage.script.supervisor(decision(*plan.tasks), decision(task("measure", "feeler", "Measure the porch.")))
    plan.give(reply="The porch has 19 degrees [2].")
    return await stage.ask()


async def _skill_that_still_fits(stage: Stage) -> RunStream:
    def printing(document: str) -> Answer:
        return calls(("print_pages", {"printer": "sp-1", "document": document}))

    before = stage.plan()
    before.task("print", PRINTING, "Print the menu on the south printer.", printing("menu"))
    before.give(reply="It is printed [1].")
    await stage.ask("Print the menu in the south.")
    stage.script.rules.clear()

    plan = stage.plan()
    plan.fixed("hall")
    plan.task("print", PRINTING, "Print the rota on the south printer.", printing("rota"), after=["hall"])
    plan.quick("gate")
    plan.retried("tea", after=["print"])
    plan.warned("paper")
    plan.give(reply="The rota is printed [2].")
    return await stage.ask()


async def _output_repaired_at_once(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.slow("background")
    plan.quick("gate", after=["background"])
    count = calls(("stock", {"item": "lamps"}))
    plan.task("lamps", DEPOT, "Count the lamps.", count, verdicts=[Answer("Looks lovely!"), APPROVED])
    write = calls(("write_document", {"name": "error-log", "text": "failed logins: 3, rejected cards: 1"}))
    plan.task("log", ARCHIVE, "Write the error log of the door: failed logins 3, rejected cards 1.", write)
    read = calls(("read_document", {"name": "error-log"}))
    plan.task("read_log", ARCHIVE, "Read the error log of the door.", read, after=["log"])
    plan.task(
        "seats", TRAVEL, "Book 2 seats on LH760.", calls(("book", {"flight": "LH760", "seats": 2})), after=["gate"]
    )
    plan.give(reply="Three logins failed and one card was rejected at the door [5]; two seats are booked [6].")
    return await stage.ask()


async def _doubt_that_a_person_removed(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    pay = calls(("charge", {"what": "cleaners", "stall": "after", "gate": "never"}))
    plan.task("wages", PAYROLL, "Charge the account with the wages of the cleaners.", pay, after=["tea"])
    plan.quick("gate", after=["wages"])
    plan.fixed("hall", after=["wages"])
    plan.warned("paper", after=["hall"])
    plan.give(reply="The wages are paid [2].")
    key = await stage.accept()
    async with stage.platform.executing(key):
        await stage.outside.payroll.until("done", "cleaners")
    await stage.begin(key)
    await stage.answered(key, resolution="done", result="The cleaners have their wages.")
    return await stage.finish(key)


async def _server_that_came_back(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.slow("background")
    plan.task("copy", COPIER, "Copy the letter.", calls(("act", {})))
    plan.rejected_once("gate", after=["copy"])
    plan.retried("tea")
    plan.quick("other_gate", after=["tea"])
    plan.give(reply="The letter is copied [2].")
    return await stage.ask()


async def _nothing_to_be_found(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.task(
        "old",
        ARCHIVE,
        "Write the document door-plan.",
        calls(("write_document", {"name": "door-plan", "text": "no access; not found: 2 keys"})),
    )
    plan.task(
        "read", ARCHIVE, "Read the document door-plan.", calls(("read_document", {"name": "door-plan"})), after=["old"]
    )
    plan.task(
        "remove",
        ARCHIVE,
        "Delete the document door-plan once it is read.",
        calls(("delete_document", {"name": "door-plan"})),
        after=["read"],
    )
    missing, there = calls(("read_document", {"name": "door-list"})), calls(("read_document", {"name": "guide-3"}))
    plan.task("guide", ARCHIVE, "Read guide-3.", missing, there)
    write = calls(("write_document", {"name": "door-list", "text": "north, south"}))
    plan.task("list", ARCHIVE, "Write the document door-list.", write, after=["guide"])
    stage.script.supervisor(decision(question="Which door?"), decision(*plan.tasks), decision())
    plan.give(reply="Two keys were not found, and the plan is deleted [2] [3].")
    key = await stage.accept()
    await stage.begin(key)
    await stage.answered(key, answer="The north one.")
    return await stage.finish(key)


OFFICE_SUCCESSES = (
    SeededRun("doubt-removed", None, "Pay the cleaners and look after the hall.", _doubt_that_a_person_removed),
    SeededRun("copier-is-back", None, "Copy the letter and find both gates.", _server_that_came_back),
    SeededRun("lost-keys", None, "Read the door plan, then delete it.", _nothing_to_be_found),
    SeededRun("much-noise", None, "Find both gates, count the tea, and see how warm the hall is.", _much_noise),
    SeededRun("given-approval", None, "Charge the customer and look after the hall.", _given_approval_and_tokens),
    SeededRun("given-anew", None, "Reserve a dozen boxes of lamps, or as many as there are.", _task_given_anew),
    SeededRun(
        "patient-team", None, "Have the watchers tell how warm the porch is.", _team_that_needs_two_attempts,
        teams=(_WATCHERS,),
    ),
    SeededRun("fitting-skill", None, "Print the rota in the south and count the tea.", _skill_that_still_fits),
    SeededRun(
        "repaired-output", None, "What does the door's error log say? And book two seats.", _output_repaired_at_once,
    ),
)  # fmt: skip
