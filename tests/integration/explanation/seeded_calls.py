"""Runs that fail at a call: its arguments, an error that is passed over, its server, its effect."""

from tests.support.model_script import Answer
from tests.support.platform import RunStream, calls, decision, verdict
from tests.support.seeded_runs import ARCHIVE, BAROMETER, DEPOT, PAYROLL, SCALES, SCANNER, TRAVEL, SeededRun, Stage


async def _boxes_in_words(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.retried("count")
    plan.task(
        "reserve", DEPOT, "Reserve a dozen boxes of coffee.", calls(("reserve", {"item": "coffee", "boxes": "a dozen"}))
    )
    plan.slow("background", after=["gate"])
    write = calls(("write_document", {"name": "dozen", "text": "12 boxes of coffee are reserved"}))
    plan.task("note", ARCHIVE, "Write down what was reserved.", write, after=["reserve"])
    plan.give(reply="LH760 leaves from C03 [1]; there are 17 boxes of tea [2].")
    return await stage.ask()


async def _transposed_flight_number(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.slow("fair")
    plan.fixed("hall", after=["fair"])
    plan.warned("paper")
    plan.task("seats", TRAVEL, "Book 2 seats on flight IB311.", calls(("book", {"flight": "IB311", "seats": 2})))
    plan.task(
        "boarding", TRAVEL, "Find the gate of flight LH454.", calls(("gate", {"flight": "LH544"})), after=["seats"]
    )
    plan.give(reply="Two seats are booked [1]; the gate of LH454 is not known.")
    return await stage.ask()


async def _eight_seats_for_three(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.warned("paper")
    plan.quick("gate", after=["tea"])
    wrong = verdict("REJECTED", "Three seats were asked for, eight were booked.")
    eight = calls(("book", {"flight": "IB311", "seats": 8}))
    plan.task("seats", TRAVEL, "Book 3 seats on flight IB311.", eight, after=["paper"], verdicts=[wrong])
    plan.slow("background", after=["seats"])
    plan.give(reply="The seats on IB311 are not booked as you asked.")
    return await stage.ask()


async def _gate_of_another_flight(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("first_gate")
    plan.fixed("hall")
    plan.slow("background", after=["hall"])
    other = verdict("REJECTED", "That is the gate of another flight than the one in the task.")
    asked = calls(("gate", {"flight": "LH760"}))
    plan.task("way_home", TRAVEL, "Find the gate of LH454.", asked, after=["first_gate"], verdicts=[other])
    write = calls(("write_document", {"name": "way-home", "text": "gate"}))
    plan.task("note", ARCHIVE, "Write down the gate of LH454.", write, after=["way_home"])
    plan.give(reply="LH760 leaves from C03 [1].")
    return await stage.ask()


async def _silent_sensor_among_good_ones(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.quick("gate")
    plan.rejected_once("other_gate")
    both = calls(("temperature", {"room": "hall"}), ("temperature", {"room": "cellar"}))
    plan.task("climate", DEPOT, "Say whether the hall and the cellar are both below 25 degrees.", both)
    write = calls(("write_document", {"name": "climate-report", "text": "The hall and the cellar have 19 degrees."}))
    plan.task("report", ARCHIVE, "Write the climate report.", write, after=["climate"])
    plan.slow("background", after=["report"])
    plan.give(reply="The hall and the cellar are both below 25 degrees [3]. The report is written [4].")
    return await stage.ask()


async def _first_of_two_steps_failed(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.warned("paper", after=["tea"])
    plan.slow("background")
    plan.quick("gate", after=["background"])
    plan.task(
        "copy",
        ARCHIVE,
        "Copy the contract with the carrier into the file carrier-copy.",
        calls(("read_document", {"name": "carrier-contract"}), ("continue", {})),
        calls(("write_document", {"name": "carrier-copy", "text": "(see the contract)"})),
        after=["paper", "gate"],
    )
    plan.give(reply="The contract with the carrier was copied to carrier-copy [5].")
    return await stage.ask()


async def _killed_server(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.slow("background")
    plan.quick("gate")
    plan.retried("tea")
    held = calls(("temperature", {"room": "yard"}))
    plan.task("yard", BAROMETER, "Measure how warm the yard is.", Answer("", held.tool_calls, hold=stage.gate), held)
    plan.task(
        "heating",
        DEPOT,
        "Reserve a lamp to warm the yard.",
        calls(("reserve", {"item": "lamps", "boxes": 1})),
        after=["yard"],
    )
    plan.give(reply="The gate is C03 [2]. It is not known how warm the yard is.")
    key = await stage.accept()
    async with stage.held_at(key, "yard") as life:
        stage.outside.barometer.kill()
        stage.outside.barometer.wait()
    return await life


async def _crashing_scanner(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.rejected_once("gate")
    plan.fixed("hall")
    plan.task("scan", SCANNER, "Scan the letter of the carrier.", calls(("act", {})), after=["gate"])
    write = calls(("write_document", {"name": "letter", "text": "the letter"}))
    plan.task("file", ARCHIVE, "File the scanned letter.", write, after=["scan"])
    plan.warned("paper", after=["hall"])
    plan.quick("second_gate")
    plan.give(reply="The letter could not be scanned.")
    return await stage.ask()


async def _server_that_never_answers(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.fixed("hall")
    plan.task("weigh", SCALES, "Weigh the parcel.", calls(("act", {})))
    plan.quick("gate", after=["hall"])
    plan.rejected_once("other_gate")
    write = calls(("write_document", {"name": "parcel", "text": "?"}))
    plan.task("label", ARCHIVE, "Write the label with the weight of the parcel.", write, after=["weigh", "gate"])
    plan.give(reply="It is not known what the parcel weighs.")
    return await stage.ask()


async def _answer_that_was_lost(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.warned("paper")
    plan.quick("gate")
    plan.task(
        "pay_carrier",
        PAYROLL,
        "Charge the carrier for the broken lamp.",
        calls(("charge", {"what": "carrier", "answer": "internal"})),
    )
    plan.slow("background", after=["gate"])
    write = calls(("write_document", {"name": "charges", "text": "the carrier was charged"}))
    plan.task("book_charge", ARCHIVE, "Write down the charge.", write, after=["pay_carrier"])
    plan.give(reply="Whether the carrier was charged is not known.")
    return await stage.ask()


async def _worker_that_stopped_in_a_call(stage: Stage) -> RunStream:
    plan = stage.plan()
    plan.retried("tea")
    plan.fixed("hall")
    plan.rejected_once("gate", after=["tea"])
    pay = calls(("charge", {"what": "night shift", "stall": "after", "gate": "never"}))
    plan.task("wages", PAYROLL, "Charge the account with the wages of the night shift.", pay, after=["hall", "gate"])
    plan.quick("next_gate", after=["wages"])
    plan.give(decision(), reply="Tea is counted [1]; the wages are in doubt.")
    key = await stage.accept()
    async with stage.platform.executing(key):
        await stage.outside.payroll.until("done", "night shift")
    await stage.begin(key)
    await stage.answered(key)
    return await stage.finish(key)


CALL_FAILURES = (
    SeededRun(
        "boxes-in-words", "wrong_argument", "Reserve a dozen boxes of coffee, note it, and find my gate for LH760.",
        _boxes_in_words, (DEPOT, "depot.reserve", "reserve"),
    ),
    SeededRun(
        "transposed-flight", "wrong_argument", "I fly with LH454: book two seats on IB311 too and tell me my gate.",
        _transposed_flight_number, (TRAVEL, "travel.gate", "boarding"),
    ),
    SeededRun(
        "eight-seats", "wrong_argument", "Book three seats on IB311 when the paper is noted down.",
        _eight_seats_for_three, (TRAVEL, "travel.book", "seats"),
    ),
    SeededRun(
        "other-gate", "wrong_argument", "From which gates do LH760 and, on my way home, LH454 leave?",
        _gate_of_another_flight, (TRAVEL, "travel.gate", "way_home"),
    ),
    SeededRun(
        "silent-sensor", "ignored_tool_error", "Are the hall and the cellar cool enough? Write a report on it.",
        _silent_sensor_among_good_ones, (DEPOT, "depot.temperature", "climate"),
    ),
    SeededRun(
        "copy-of-nothing", "ignored_tool_error", "Copy the carrier's contract, and count the tea and note the paper.",
        _first_of_two_steps_failed, (ARCHIVE, "archive.read_document", "copy"),
    ),
    SeededRun(
        "killed-server", "degraded_server", "How warm is it in the yard? If it is cold, reserve a lamp.",
        _killed_server, (BAROMETER, "depot_outside", "yard"),
    ),
    SeededRun(
        "crashing-scanner", "degraded_server", "Scan the carrier's letter, file it, and look after the hall.",
        _crashing_scanner, (SCANNER, "scanner", "scan"),
    ),
    SeededRun(
        "mute-scales", "degraded_server", "Weigh the parcel and write its label; how warm is the hall?",
        _server_that_never_answers, (SCALES, "scales", "weigh"),
    ),
    SeededRun(
        "lost-answer", "effect_in_doubt", "Charge the carrier for the lamp that broke and write that down.",
        _answer_that_was_lost, (PAYROLL, "payroll.charge", "pay_carrier"),
    ),
    SeededRun(
        "stopped-worker", "effect_in_doubt", "Pay the night shift once the tea is counted and the hall is warm.",
        _worker_that_stopped_in_a_call, (PAYROLL, "payroll.charge", "wages"),
    ),
)  # fmt: skip
