"""Runs whose texts are not English: nothing is guessed from words, and what the structure shows is named."""

from dataclasses import replace

from brain.explanation.rows import AnswerRow, SkillRow
from brain.explanation.shape import Explanation
from brain.skills.skill import SkillCall
from starling.core.tool_calls import Effect
from tests.support.run_rows import FILES, RUN, SHOP, WRITER, RunStory, Told, planned


def _german_run() -> RunStory:
    story = RunStory(run=replace(RUN, input="Was kostet der Mantel, und wo ist der Bericht?"))
    story.plan(
        planned("t1", SHOP, "Finde den Preis des Mantels"),
        planned("t2", FILES, "Schicke den Bericht an Anna"),
        planned("t3", FILES, "Speichere den Bericht"),
    )
    return story


def german_error_without_evidence() -> Explanation:
    story = _german_run()
    story.start("t1")
    text = "Die Kasse ist offline, der Parameter ist egal."
    story.call("t1", "shop.price", {"item": "Mantel"}, text, "tool_error")
    story.end("t1", f"shop.price failed: {text}", "tool_error")
    return story.explained()


def german_file_read_before_it_is_written() -> Explanation:
    story = _german_run()
    story.start("t2")
    story.call("t2", "files.read", {"path": "bericht.txt"}, "Diese Datei gibt es nicht: bericht.txt", "tool_error")
    story.start("t3")
    story.call("t3", "files.write", {"path": "bericht.txt"}, "gespeichert", effect=Effect.IDEMPOTENT)
    story.end("t3", "gespeichert")
    story.end("t2", "files.read failed: Diese Datei gibt es nicht: bericht.txt", "tool_error")
    return story.explained()


def german_wrong_value() -> Explanation:
    story = _german_run()
    story.start("t1")
    story.call("t1", "shop.price", {"item": "Mandel"}, "Das verkaufen wir nicht: Mandel.", "tool_error")
    story.end("t1", "shop.price failed: Das verkaufen wir nicht: Mandel.", "tool_error")
    return story.explained()


def german_text_with_words_of_english_lists() -> Explanation:
    story = RunStory(run=replace(RUN, input="Wie wird der Zaun gestrichen?"))
    story.plan(planned("t1", WRITER, "Beschreibe die Arbeit"), planned("t2", SHOP, "Bestelle die Farbe"))
    story.start("t1")
    story.write("t1", "Zuerst den Zaun lackieren, dann die Farbe trocknen lassen.")
    story.verdict("t1", "APPROVED")
    story.end("t1", "Zuerst den Zaun lackieren, dann die Farbe trocknen lassen.")
    story.done("t2", "shop.order", {"item": "Farbe"}, "bestellt")
    return story.explained()


def german_fix_that_writes_a_number_anew() -> Explanation:
    story = _german_run()
    story.start("t1")
    story.call("t1", "shop.price", {"item": "Mantel"}, "1000.5 EUR")
    story.answers.append(
        AnswerRow("t1/review", 0, '{"status": "FIXED", "refined_output": "Der Mantel kostet 1.000,50 EUR."}')
    )
    story.verdict("t1", "FIXED")
    story.end("t1", "Der Mantel kostet 1.000,50 EUR.")
    return story.explained()


def spanish_result_that_begins_with_error() -> Explanation:
    story = RunStory(run=replace(RUN, input="¿Está todo en orden en el puesto 4?"))
    story.plan(planned("t1", SHOP, "Revisa el puesto 4"))
    story.done("t1", "shop.check", {"stall": 4}, "Error: ninguno. Todo está en orden en el puesto 4.")
    return story.explained()


def _german_skill(error: str) -> Explanation:
    story = _german_run()
    call = SkillCall("shop.price", {"item": {"slot": "item", "from": "task"}, "list": "2024"})
    story.skills.append(SkillRow("018f0000-0000-7000-8000-0000000000aa", "active", "", "Preis von {item}", (call,)))
    story.start("t1")
    story.call("t1", "shop.price", {"item": "Mantel", "list": "2024"}, error, "tool_error")
    story.end("t1", f"shop.price failed: {error}", "tool_error", skills=[story.skills[0].id])
    return story.explained()


def german_skill_with_a_constant_that_the_error_names() -> Explanation:
    return _german_skill("Die Liste 2024 ist geschlossen.")


def german_error_that_says_nothing_of_a_skill() -> Explanation:
    return _german_skill("Die Kasse antwortet nicht.")


FAILURES: list[tuple[str, Told]] = [
    ("tool_failed", german_error_without_evidence),
    ("bad_plan_order", german_file_read_before_it_is_written),
    ("wrong_argument", german_wrong_value),
    ("wrong_argument", german_error_that_says_nothing_of_a_skill),
    ("stale_skill", german_skill_with_a_constant_that_the_error_names),
]
SOUND: list[Told] = [
    german_text_with_words_of_english_lists,
    german_fix_that_writes_a_number_anew,
    spanish_result_that_begins_with_error,
]
