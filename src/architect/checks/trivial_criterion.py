"""Rule: what a case demands isn't met by an empty answer, nor by repeating the request."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from architect.wording import folded, says_something
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return texts that say nothing or stand in the request itself, and examples that demand nothing."""
    values: dict[str, str] = {}
    for number, criterion in enumerate(team.criteria):
        if criterion.kind == "text_contains" and criterion.value is not None:
            values[criterion.id] = criterion.value
            if not says_something(criterion.value):
                reason = f"Nearly every answer contains {criterion.value!r}."
                remedy = "Set `value` to a text of at least two letters or digits that only a right answer has."
                yield _finding(f"criteria[{number}].value", reason, remedy)
    for number, example in enumerate(team.examples):
        if not (example.criteria or example.must_call):
            reason = "The example demands nothing of the answer, so an empty one would pass."
            remedy = "Add a criterion that the answer has to meet, or a tool to `must_call`."
            yield _finding(f"examples[{number}]", reason, remedy)
        request = folded(example.input)
        for index, name in enumerate(example.criteria):
            if name in values and folded(values[name]) in request:
                reason = f"{values[name]!r} stands in the request itself, so an answer that repeats it meets {name!r}."
                remedy = "Demand a text that only the result has, or choose another `kind`."
                yield _finding(f"examples[{number}].criteria[{index}]", reason, remedy)


def _finding(path: str, reason: str, remedy: str) -> Finding:
    return Finding(path, "trivial_criterion", reason, remedy)
