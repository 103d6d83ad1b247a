"""Runs whose requests, tasks, verdicts and tools speak German or Spanish."""

from tests.support.platform import RunStream, calls, decision, verdict
from tests.support.seeded_runs import APPROVED, BAHNHOF, MERCADO, Plan, SeededRun, Stage


def _trains(plan: Plan) -> None:
    wrong, right = (calls(("gleis", {"zug": zug})) for zug in ("RE 50", "RE 5"))
    plan.task("gleis_re", BAHNHOF, "Finde das Gleis des Zuges RE 5.", wrong, right)
    other, asked = (calls(("gleis", {"zug": zug})) for zug in ("RE 5", "ICE 71"))
    rejected = verdict("REJECTED", "Das ist das Gleis von RE 5; gefragt war nach ICE 71.")
    words = "Finde das Gleis des Zuges ICE 71."
    plan.task("gleis_ice", BAHNHOF, words, other, asked, after=["gleis_re"], verdicts=[rejected, APPROVED])
    booked = calls(("platz_buchen", {"zug": "ICE 71", "plaetze": 2}))
    plan.task("plaetze", BAHNHOF, "Buche zwei Plätze im ICE 71.", booked, after=["gleis_ice"])


async def _german_success(stage: Stage) -> RunStream:
    plan = stage.plan()
    _trains(plan)
    checked = calls(("notruf_pruefen", {"nummer": 3}))
    plan.task("notruf", BAHNHOF, "Prüfe die Notrufsäule 3.", checked)
    text = "Notrufsäule 3: 0 Error, 2 Fehler behoben, kein Not-Halt"
    posted = calls(("aushang", {"titel": "Notruf", "text": text}))
    fixed = verdict(
        "FIXED", "Als Satz gesagt.", refined="Der Aushang Notruf hängt; an der Notrufsäule 3 sind 2 Fehler behoben."
    )
    words = "Hänge aus, was die Prüfung der Notrufsäule ergab."
    plan.task("aushang", BAHNHOF, words, posted, after=["notruf"], verdicts=[fixed, APPROVED])
    plan.give(reply="ICE 71 fährt auf Gleis 4 ab [2], zwei Plätze sind gebucht [3], der Aushang hängt [5].")
    return await stage.ask()


async def _german_silent_post(stage: Stage) -> RunStream:
    plan = stage.plan()
    _trains(plan)
    both = calls(("notruf_pruefen", {"nummer": 3}), ("notruf_pruefen", {"nummer": 9}))
    plan.task("notruf", BAHNHOF, "Prüfe, ob die Notrufsäulen 3 und 9 in Ordnung sind.", both)
    posted = calls(("aushang", {"titel": "Notruf 3 und 9", "text": "Beide Säulen sind in Ordnung."}))
    plan.task("aushang", BAHNHOF, "Hänge das Ergebnis der Prüfung aus.", posted, after=["notruf"])
    plan.give(reply="Beide Notrufsäulen sind in Ordnung [4], der Aushang hängt [5].")
    return await stage.ask()


async def _spanish_success(stage: Stage) -> RunStream:
    plan = stage.plan()
    wrong, right = (calls(("precio", {"producto": name})) for name in ("pera", "peras"))
    plan.task("peras", MERCADO, "Averigua cuánto cuestan las peras.", wrong, right)
    other, asked = (calls(("precio", {"producto": name})) for name in ("peras", "higos"))
    rejected = verdict("REJECTED", "Este es el precio de las peras; la tarea pregunta por los higos.")
    words = "Averigua cuánto cuestan los higos."
    plan.task("higos", MERCADO, words, other, asked, after=["peras"], verdicts=[rejected, APPROVED])
    kept = calls(("apartar", {"producto": "higos", "cajas": 5}))
    plan.task("cajas", MERCADO, "Aparta cinco cajas de higos.", kept, after=["higos"])
    plan.task("puesto", MERCADO, "Revisa el puesto 4.", calls(("revisar", {"puesto": 4})))
    noted = calls(("anotar", {"titulo": "puesto 4", "texto": "ningún error; 2 llaves no encontradas"}))
    plan.task("nota", MERCADO, "Anota lo que salió de la revisión.", noted, after=["puesto"])
    plan.give(decision(), reply="Los higos cuestan 6 euros [2]; hay 5 cajas apartadas [3]; no falta nada [4].")
    return await stage.ask()


FOREIGN_FAILURES = (
    SeededRun(
        "stille-saeule", "ignored_tool_error", "Sind die Notrufsäulen 3 und 9 in Ordnung? Häng das Ergebnis aus.",
        _german_silent_post, (BAHNHOF, "bahnhof.notruf_pruefen", "notruf"),
    ),
)  # fmt: skip
FOREIGN_SUCCESSES = (
    SeededRun("zwei-plaetze", None, "Buche zwei Plätze im ICE 71 und prüfe die Notrufsäule 3.", _german_success),
    SeededRun("cinco-cajas", None, "¿Cuánto cuestan los higos? Aparta cinco cajas.", _spanish_success),
)
