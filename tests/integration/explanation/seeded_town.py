"""Runs in a clinic, a garage, a school and a harbour: nine that fail, each by another cause, and three that don't."""

from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from tests.support.model_script import Answer
from tests.support.platform import RunStream, calls, decision, task, verdict
from tests.support.seeded_runs import APPROVED, CLINIC, GARAGE, HARBOUR, SCHOOL, XRAY, Plan, SeededRun, Stage

_PERSONA = Persona(role="mechanic", goal="keep vans on the road")
_MECHANICS = StarSpec(
    name="mechanics",
    purpose="Inspects vans and orders parts.",
    members=(
        Member(name="inspector", persona=_PERSONA, server="garage", tools=("garage.inspect_part",), runtime="native"),
        Member(name="purchaser", persona=_PERSONA, server="garage", tools=("garage.order_part",), runtime="native"),
    ),
)


def _tide(plan: Plan, after: tuple[str, ...] = ()) -> None:
    plan.task("tide", HARBOUR, "Say when high tide is on 14 March.", calls(("tide", {"day": "14 March"})), after=after)


def _patient(plan: Plan, after: tuple[str, ...] = ()) -> None:
    wrong, right = (calls(("find_patient", {"number": number})) for number in (4421, 4412))
    plan.task("patient", CLINIC, "Find the patient with number 4412.", wrong, right, after=after)


def _lamp(plan: Plan, after: tuple[str, ...] = ()) -> None:
    asked = calls(("inspect_part", {"vehicle": "van 3", "part": "the left lamp"}))
    plan.task("lamp", GARAGE, "Inspect the left lamp of van 3.", asked, after=after)


def _lessons(plan: Plan, after: tuple[str, ...] = ()) -> None:
    wrong, right = (calls(("timetable", {"class_name": name})) for name in ("6a", "5b"))
    rejected = verdict("REJECTED", "These lessons are those of 6a, while 5b was asked about.")
    words = "Say which lessons class 5b has."
    plan.task("lessons", SCHOOL, words, wrong, right, after=after, verdicts=[rejected, APPROVED])


async def _kilograms_for_tonnes(stage: Stage) -> RunStream:
    plan = stage.plan()
    _tide(plan)
    assign = calls(("assign_berth", {"ship": "Calypso", "berth": 3}))
    plan.task("berth", HARBOUR, "Give the Calypso berth 3.", assign, after=["tide"])
    fuel = calls(("fuel", {"ship": "Calypso", "tonnes": 40_000}))
    plan.task("fuelling", HARBOUR, "Fuel the Calypso with 40 tonnes of diesel.", fuel, after=["berth"])
    _lamp(plan)
    _patient(plan, after=("lamp",))
    plan.give(reply="The Calypso lies at berth 3 [2]; she has no fuel yet.")
    return await stage.ask()


async def _sample_that_was_not_measured(stage: Stage) -> RunStream:
    plan = stage.plan()
    _patient(plan)
    samples = [("lab_values", {"sample": sample}) for sample in ("S-12", "S-14", "S-16")]
    plan.task(
        "glucose", CLINIC, "Compare the glucose of samples S-12, S-14 and S-16.", calls(*samples), after=["patient"]
    )
    hour = calls(("book_hour", {"doctor": "Lind", "hour": "10:00"}))
    plan.task("hour", CLINIC, "Book 10:00 with Dr Lind, to discuss the values.", hour, after=["glucose"])
    _lessons(plan)
    _tide(plan)
    plan.give(reply="All three samples have a glucose of 5.1 [2]; 10:00 with Dr Lind is booked [3].")
    return await stage.ask()


async def _x_ray_that_does_not_start(stage: Stage) -> RunStream:
    plan = stage.plan()
    _lessons(plan)
    _patient(plan)
    plan.task(
        "picture", XRAY, "Take a picture of the left hand of patient 4412.", calls(("act", {})), after=["patient"]
    )
    hour = calls(("book_hour", {"doctor": "Okafor", "hour": "14:30"}))
    plan.task("findings", CLINIC, "Book an hour for which Dr Okafor has the picture.", hour, after=["picture"])
    _lamp(plan, after=("lessons",))
    plan.give(reply="There is no picture of the hand, so no hour was booked.")
    return await stage.ask()


async def _report_before_its_marks(stage: Stage) -> RunStream:
    plan = stage.plan()
    _lessons(plan)
    publish = calls(("publish_report", {"pupil": "Ines"}))
    plan.task("report", SCHOOL, "Publish the report of Ines with her physics mark.", publish, after=["lessons"])
    _tide(plan)
    _patient(plan, after=("tide",))
    mark = calls(("enter_mark", {"pupil": "Ines", "subject": "physics", "mark": 2}))
    plan.task("mark", SCHOOL, "Enter mark 2 in physics for Ines.", mark, after=["patient"])
    plan.give(reply="Ines has a 2 in physics [5]; her report is not published.")
    return await stage.ask()


async def _pads_that_are_no_longer_made(stage: Stage) -> RunStream:
    async def earlier(request: str, name: str, words: str, answer: Answer) -> None:
        plan = stage.plan()
        plan.task(name, GARAGE, words, answer)
        plan.give(reply="Done [1].")
        await stage.ask(request)
        stage.script.rules.clear()

    four = calls(("order_part", {"number": "BP-100", "pieces": 4}))
    await earlier("Order brake pads for van 3.", "pads", "Order 4 brake pads for a van.", four)
    withdraw = calls(("withdraw_part", {"number": "BP-100", "successor": "BP-200"}))
    await earlier("BP-100 ends.", "withdraw", "Let BP-200 take the place of BP-100.", withdraw)

    plan = stage.plan()
    _tide(plan)
    _lamp(plan)
    six = calls(("order_part", {"number": "BP-100", "pieces": 6}))
    plan.task("pads", GARAGE, "Order 6 brake pads for a van.", six, after=["lamp"])
    blades = calls(("order_part", {"number": "WB-5", "pieces": 2}))
    plan.task("blades", GARAGE, "Order 2 wiper blades WB-5.", blades)
    _lessons(plan, after=("blades",))
    plan.give(reply="The wiper blades are ordered [4], the brake pads aren't.")
    return await stage.ask()


async def _berth_that_the_reviewer_misread(stage: Stage) -> RunStream:
    plan = stage.plan()
    _tide(plan)
    assign = calls(("assign_berth", {"ship": "Daphne", "berth": 5}))
    misread = verdict("REJECTED", "The ship was sent to berth 15, and the task names berth 5.")
    plan.task("berth", HARBOUR, "Give the Daphne berth 5.", assign, after=["tide"], verdicts=[misread])
    fuel = calls(("fuel", {"ship": "Daphne", "tonnes": 60}))
    plan.task("fuelling", HARBOUR, "Fuel the Daphne at her berth with 60 tonnes.", fuel, after=["berth"])
    _patient(plan)
    _lessons(plan, after=("patient",))
    plan.give(reply="The Daphne has no berth, so she was not fuelled.")
    return await stage.ask()


async def _tide_instead_of_fuel(stage: Stage) -> RunStream:
    plan = stage.plan()
    _patient(plan)
    _lessons(plan)
    asked = calls(("tide", {"day": "14 March"}))
    tide = verdict("REJECTED", "This is the time of high tide; the Gaia still has empty tanks.")
    plan.task("tanks", HARBOUR, "Fuel the Gaia with 30 tonnes.", asked, after=["patient"], verdicts=[tide])
    assign = calls(("assign_berth", {"ship": "Gaia", "berth": 11}))
    plan.task("berth", HARBOUR, "Once she is fuelled, give the Gaia berth 11.", assign, after=["tanks"])
    _lamp(plan)
    plan.give(reply="The Gaia has no fuel.")
    return await stage.ask()


async def _arguments_cut_off(stage: Stage) -> RunStream:
    plan = stage.plan()
    _lamp(plan)
    _patient(plan)
    cut = calls(("timetable", '{"class_name": "7c'))
    plan.task("monday", SCHOOL, "Say which lessons 7c has on Monday.", cut, after=["lamp"])
    mark = calls(("enter_mark", {"pupil": "Jon", "subject": "music", "mark": 1}))
    plan.task("music", SCHOOL, "Enter mark 1 in music for Jon of 7c.", mark)
    _tide(plan, after=("music",))
    plan.give(reply="Jon has a 1 in music [4]. The lessons of 7c are not known.")
    return await stage.ask()


async def _purchaser_with_another_number(stage: Stage) -> RunStream:
    plan = stage.plan()
    _lessons(plan)
    words = f"Inspect the brakes of van 8 and order 4 pieces of BP-200 {stage.run.reference}."
    plan.task("service", "mechanics", words, after=["lessons"])
    _tide(plan)
    _patient(plan)
    blades = calls(("order_part", {"number": "WB-5", "pieces": 1}))
    plan.task("blades", GARAGE, "Once van 8 is serviced, order 1 wiper blade WB-5.", blades, after=["service"])
    inside = (
        task("brakes", "inspector", "Inspect the brakes of van 8."),
        task("parts", "purchaser", "Order 4 pieces of BP-200.", ["brakes"]),
    )
    stage.script.agent("brakes", calls(("inspect_part", {"vehicle": "van 8", "part": "the brakes"})))
    stage.script.agent("parts", calls(("order_part", {"number": "BP-2000", "pieces": 4})))
    stage.script.supervisor(decision(*plan.tasks), decision(*inside), decision())
    plan.give(reply="The brakes of van 8 were inspected; no parts were ordered.")
    return await stage.ask()


async def _harbour_day(stage: Stage) -> RunStream:
    plan = stage.plan()
    _tide(plan)
    plan.task("free", HARBOUR, "Send the ship at berth 9 away.", calls(("free_berth", {"berth": 9})), after=["tide"])
    asked = calls(("who_lies_at", {"berth": 9}))
    plan.task("check", HARBOUR, "Check that no ship lies at berth 9 any longer.", asked, after=["free"])
    much, right = (calls(("fuel", {"ship": "Elektra", "tonnes": tonnes})) for tonnes in (20_000, 20))
    plan.task("fuelling", HARBOUR, "Fuel the Elektra with 20 tonnes.", much, right)
    _lamp(plan)
    plan.task("glucose", CLINIC, "Say the glucose of sample S-20.", calls(("lab_values", {"sample": "S-20"})))
    plan.give(reply="Berth 9 is free [2] [3]; the lamp of van 3 failed its inspection [5]; the glucose is 5.1 [6].")
    return await stage.ask()


async def _second_supplier(stage: Stage) -> RunStream:
    plan = stage.plan()
    _lamp(plan)
    _patient(plan)
    missing, there = (calls(("order_part", {"number": number, "pieces": 2})) for number in ("OF-30", "OF-20"))
    words = "Order 2 oil filters OF-30, or others that fit."
    plan.task("filters", GARAGE, words, missing, missing, there, after=["lamp"])
    _lessons(plan)
    _tide(plan)
    instead = decision(task("filters", GARAGE, "Order 2 oil filters OF-20, which fit in place of OF-30."))
    plan.give(instead, reply="Two oil filters OF-20 are ordered, in place of OF-30 [3].")
    return await stage.ask()


async def _visiting_day(stage: Stage) -> RunStream:
    before = stage.plan()
    ten = calls(("book_hour", {"doctor": "Lind", "hour": "10:00"}))
    before.task("hour", CLINIC, "Book 10:00 with Dr Lind.", ten)
    before.give(reply="It is booked [1].")
    await stage.ask("Book 10:00 with Dr Lind.")
    stage.script.rules.clear()

    plan = stage.plan()
    eleven = calls(("book_hour", {"doctor": "Okafor", "hour": "11:00"}))
    plan.task("hour", CLINIC, "Book 11:00 with Dr Okafor.", eleven)
    cut, whole = (calls(("find_patient", arguments)) for arguments in ('{"number": 44', {"number": 4488}))
    plan.task("visited", CLINIC, "Find patient 4488.", cut, whole, after=["hour"])
    publish = calls(("publish_report", {"pupil": "Kofi"}))
    mark = calls(("enter_mark", {"pupil": "Kofi", "subject": "sports", "mark": 1}))
    plan.task("mark", SCHOOL, "Enter mark 1 in sports for Kofi.", mark)
    fixed = verdict("FIXED", "Shortened.", refined="The report of Kofi is published: sports 1")
    plan.task("report", SCHOOL, "Publish the report of Kofi.", publish, after=["mark"], verdicts=[fixed, APPROVED])
    _lessons(plan)
    plan.give(reply="11:00 with Dr Okafor is booked [1]; the report of Kofi is published [4].")
    return await stage.ask()


TOWN_FAILURES = (
    SeededRun(
        "fuel-in-kilograms", "wrong_argument", "Give the Calypso berth 3 and forty tonnes of diesel.",
        _kilograms_for_tonnes, (HARBOUR, "harbour.fuel", "fuelling"),
    ),
    SeededRun(
        "empty-analyser", "ignored_tool_error", "Compare the glucose of three samples and let me discuss it.",
        _sample_that_was_not_measured, (CLINIC, "clinic.lab_values", "glucose"),
    ),
    SeededRun(
        "dark-x-ray", "degraded_server", "Have the hand of patient 4412 X-rayed and book an hour with the doctor.",
        _x_ray_that_does_not_start, (XRAY, "xray", "picture"),
    ),
    SeededRun(
        "report-without-marks", "bad_plan_order", "Ines has a 2 in physics: enter it and publish her report.",
        _report_before_its_marks, (SCHOOL, "school.publish_report", "report"),
    ),
    SeededRun(
        "withdrawn-pads", "stale_skill", "Order six brake pads and two wiper blades.",
        _pads_that_are_no_longer_made, (GARAGE, "garage.order_part", "pads"),
    ),
    SeededRun(
        "misread-berth", "wrong_verdict", "The Daphne comes at high tide: a berth and 60 tonnes for her.",
        _berth_that_the_reviewer_misread, (HARBOUR, "harbour.assign_berth", "berth"),
    ),
    SeededRun(
        "tide-for-fuel", "wrong_tool", "The Gaia needs 30 tonnes of fuel, then a berth.",
        _tide_instead_of_fuel, (HARBOUR, "harbour.tide", "tanks"),
    ),
    SeededRun(
        "cut-off-class", "unreadable_model_output", "What does 7c have on Monday? Jon has a 1 in music.",
        _arguments_cut_off, (SCHOOL, "timetable", "monday"),
    ),
    SeededRun(
        "parts-for-van-8", "failed_team_member", "Let the mechanics service van 8, then order a wiper blade.",
        _purchaser_with_another_number, ("purchaser", "mechanics", "service"), (_MECHANICS,),
    ),
)  # fmt: skip
TOWN_SUCCESSES = (
    SeededRun("harbour-day", None, "Make berth 9 free, fuel the Elektra and look after van 3.", _harbour_day),
    SeededRun("second-supplier", None, "Order oil filters for van 3, whatever fits.", _second_supplier),
    SeededRun("visiting-day", None, "Book 11:00 with Dr Okafor and publish Kofi's report.", _visiting_day),
)
