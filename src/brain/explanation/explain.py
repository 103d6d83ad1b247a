"""From the rows of a run to its explanation. Pure: asks no model and reads nothing."""

from datetime import datetime

from brain.explanation import costs, sections
from brain.explanation.history_reading import read_history
from brain.explanation.rows import RunRows
from brain.explanation.rules.incident import Incident
from brain.explanation.rules.table import causes
from brain.explanation.shape import Cause, Explanation, Ref


def explain(rows: RunRows, now: datetime) -> Explanation:
    """Return why the run came to what it came to; of a run that has not ended, as far as it is at `now`."""
    history = read_history(rows)
    found = [_cause(incident) for incident in causes(history)[: sections.MOST]]
    return Explanation(
        run_id=rows.run.id,
        status=rows.run.status,
        cause=found[0] if found else None,
        causes=found,
        asked=sections.asked(history),
        planned=sections.planned(history),
        failures=sections.failures(history),
        verdicts=sections.verdicts(history),
        passed_over=sections.passed_over_errors(history),
        retried=sections.retried(history),
        degraded=sections.degraded(history),
        waited=sections.waited(history, now),
        cost=costs.cost(history, now),
        pruned=costs.pruned(history),
    )


def _cause(incident: Incident) -> Cause:
    refs = [Ref(kind=ref.kind, id=ref.id) for ref in incident.refs]
    return Cause(code=incident.code, text=incident.text, refs=refs, task=incident.task)
