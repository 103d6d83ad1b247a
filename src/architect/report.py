"""The outcome of a build as a short text for a person: its result, what the proof showed, what to do next."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from architect.checks.few_cases import FEWEST
from architect.proof import CASES
from architect.team_store import PublishedVersion
from starling.core.events.build_events import MissingPart
from starling.core.teams.proofs import CaseReport, ProofReport
from starling.core.teams.spec import Finding, TeamMember, TeamSpec
from starling.core.text import one_line

_LINE_CHARS: Final = 300  # of a text that a model or a caller wrote
_TOOLS_SHOWN: Final = 5
_UNMET_SHOWN: Final = 5  # of a case
_NOT_COUNTED: Final = (
    "The version keeps its earlier proof and its state: only who made it, or an admin, lowers its state by further",
    "cases. This report stays with the run.",
)
_ANOTHER_CASE: Final = (
    "Add requests of your own that the team has to serve, so that there are two: `--case FILE` names a file with one,",
    "over HTTP `cases` has them. Such a file has the request, and a text that a right answer contains, for example:",
    "  input: How full is the disk?",
    "  criteria: [{id: share, kind: text_contains, text: It names a share., value: percent}]",
)


def built_text(
    team: TeamSpec, published: PublishedVersion, proof: ProofReport, missing: Sequence[MissingPart] = ()
) -> str:
    """Return the report of a team that was built: its members, its proof, the parts that it leaves out."""
    state = "active" if published.state == "active" else f"stored: {published.state}"
    since = f" from epoch {published.epoch} on" if published.state == "active" and published.epoch is not None else ""
    lines = [f"{_name(published)} is {state}{since}.", _line(team.purpose), ""]
    lines += ["Members:", *map(_member, team.members), ""]
    lines += _proof(proof)
    if missing:
        lines += ["", "It does not serve these parts of the goal:", *map(_missing, missing)]
    return "\n".join([*lines, "", *_next(published, proof)])


def proof_text(published: PublishedVersion, proof: ProofReport, *, counts: bool = True) -> str:
    """Return the report of a proof of a version that was built or imported before."""
    lines = [f"The proof of {_name(published)} ended as: {proof.state}.", "", *_proof(proof)]
    if not counts:
        return "\n".join([*lines, "", *_NOT_COUNTED])
    further = [] if published.state == "active" and proof.state == "proven" else ["", *_next(published, proof)]
    return "\n".join([*lines, *further])


def gap_text(missing: Sequence[MissingPart], members: int | None = None) -> str:
    """Return why nothing was built: the parts of the goal that no agent serves, with so many `members` at most."""
    why, more = "No server and no team that you may use serves these parts of the goal:", list[str]()
    if members:
        limit = f"{members} member{'' if members == 1 else 's'}"
        why = f"A team of at most {limit} would not serve these parts of the goal:"
        more.append(
            "Allow more members (`--members`, over HTTP `constraints.members`) where a server fits that is named."
        )
    return "\n".join(
        [
            f"No team was built. {why}",
            *map(_missing, missing),
            "",
            *more,
            "Add a server that does (`starling server add`), or change the goal to what your servers can do.",
            "`starling server list` shows them.",
            "To have a team without these parts, repeat the request with `--partial`, over HTTP with `partial: true`.",
        ]
    )


def refused_text(findings: Sequence[Finding]) -> str:
    """Return why nothing was built: what is wrong with the last design, or with the caller's cases for it."""
    own = [one for one in findings if one.path.startswith(CASES)]
    others = [one for one in findings if one not in own]
    lines = ["No team was built."]
    if others:
        lines += ["The last design still has these faults:", *map(_fault, others), ""]
    if own:
        lines += ["Your cases don't fit the team that was designed:", *map(_fault, own), ""]
    if any(one.rule == "few_cases" for one in others):
        return "\n".join([*lines, *_ANOTHER_CASE])
    if others:
        lines.append(
            "Repeat the request with a goal that names the servers or tools to use, or write the spec yourself:"
        )
        lines.append("`starling team schema` prints its format, and `starling team import` stores it.")
    else:
        lines.append("Correct them, or repeat the request with a goal that says what they are for.")
    return "\n".join(lines)


def untried_text(name: str, findings: Sequence[Finding]) -> str:
    """Return why a team was not tried: what is wrong with its cases."""
    why = f"{name} was not tried, because its cases can't show that it works:"
    remedy = ["Correct the cases that you sent."]
    if any(one.rule == "few_cases" for one in findings):
        remedy = [*_ANOTHER_CASE]
    elif not all(one.path.startswith(CASES) for one in findings):
        remedy = ["Import a version with other examples."]
    return "\n".join([why, *map(_fault, findings), "", *remedy])


_line = partial(one_line, limit=_LINE_CHARS)


def _fault(finding: Finding) -> str:
    return f"- {_line(str(finding))} ({finding.rule})"


def _member(member: TeamMember) -> str:
    works_with = "only writes"
    if member.team:
        works_with = f"the team {member.team}"
    elif member.server:
        names = [tool.partition(".")[2] for tool in member.tools]
        more = f" and {len(names) - _TOOLS_SHOWN} more" if len(names) > _TOOLS_SHOWN else ""
        works_with = f"{member.server}: {', '.join(names[:_TOOLS_SHOWN]) or 'all its tools'}{more}"
    return f"- {member.name} ({works_with}): {_line(member.role)}"


def _proof(proof: ProofReport) -> Iterator[str]:
    passed, found = proof.passed, [one for case in proof.cases for one in case.criteria if one.decided]
    met = sum(one.met for one in found)
    yield (
        f"Proof: {passed} of {len(proof.cases)} cases passed. {met} of {len(found)} criteria are met, "
        f"{proof.threshold:.0%} have to be."
    )
    for case in proof.cases:
        yield f"- {case.id}: {case.outcome}. {_calls(case)}"
        unmet = [one for one in case.criteria if not one.met]
        yield from (f"  - {_line(one.id)}: {_line(one.reason)}" for one in unmet[:_UNMET_SHOWN])
        if more := unmet[_UNMET_SHOWN:]:
            yield f"  - {len(more)} more"
    if proof.not_judged:
        yield from ("", "What nobody judged:", *(f"- {_line(one)}" for one in proof.not_judged))


def _calls(case: CaseReport) -> str:
    count = len(case.trial.calls)
    if not count:
        return "No tool was called."
    sources = Counter(call.source for call in case.trial.calls)
    told = ", ".join(f"{number} {source}" for source, number in sources.items())
    return f"{count} call{'' if count == 1 else 's'} answered: {told}."


def _missing(part: MissingPart) -> str:
    nearest = ", ".join(_line(one) for one in part.nearest)
    return f"- {_line(part.part)}. {f'Nearest: {nearest}.' if nearest else 'Nothing comes near.'}"


def _next(published: PublishedVersion, proof: ProofReport) -> Iterator[str]:
    name = _name(published)
    if published.state == "active" and proof.state != "failed":
        yield f"`starling team show {published.name}` shows it. Requests that fit its purpose can be given to it."
    if proof.state == "failed":
        yield (
            f"The proof failed. `starling team prove {name}` tries it again; `starling team export {name}` prints the "
            "spec, to be corrected and imported."
        )
    elif published.state != "active":
        command = f"`starling team activate {name}`"
        reasons = " ".join(_reasons(published, proof))
        yield f"{reasons} Only an admin may activate it: {command}." if reasons else f"{command} lets runs use it."


def _reasons(published: PublishedVersion, proof: ProofReport) -> Iterator[str]:
    """Return why only an admin may activate a version, in sentences; nothing if its proof suffices."""
    if published.approval or proof.state == "unproven":
        yield _line(published.approval or "It is not proven.")
    if proof.state == "unproven" and proof.passed < FEWEST:
        yield f"Fewer than {FEWEST} cases with a criterion about the answer passed."
    if alone := [case.id for case in proof.cases if case.simulation_only]:
        yield f"No server gave a result in {', '.join(alone)}."


def _name(published: PublishedVersion) -> str:
    return f"{published.name}@{published.version}"
