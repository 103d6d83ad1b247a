"""Designs a team for a goal: a model writes it, the checks judge it, and the model repairs what they find."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter

from architect.checks import DESIGN_RULES, WITHOUT_EXAMPLES, checked
from architect.design.document import DesignDocument, SpecWriter
from architect.design.goal_parts import parts_of
from architect.design.sections import MOST_CANDIDATES, answer_section, goal_sections, repair_sections
from architect.design.selection import SHORTLIST, PartFit, Selection, searched_texts, select, shortlist
from architect.proof import of_cases
from architect.team_world import TeamWorld
from starling.core.events.build_events import CheckFinding, Checks, Design, DesignedMember, MissingPart
from starling.core.events.stream import AnyEvent
from starling.core.json import storable_text
from starling.core.teams.building import QUESTION, BuildRequest, BuildRun, Candidate, Section
from starling.core.teams.proofs import PartReport
from starling.core.teams.spec import Finding, TeamInvalidError, TeamSpec

REPAIRS: Final = 2
_PROMPT: Final = "designer"
_MOST_OPTIONS: Final = 5
_WIDE: Final = 200  # candidates of each text, where only some servers may be used
_UNSERVED, _DOUBTED = "unserved_part", "doubted_part"
_OTHER: Final = 0  # in place of the number of a part: a text of `missing` that is not that of any part
_CONTRADICTION: Final = Finding(
    "missing",
    _DOUBTED,
    "Members do what `missing` names.",
    "Keep in `missing` the numbers of parts that no member does, or take a part's number from its member.",
)
_UNKNOWN: Final = "The caller may not be asked: choose the most likely reading."


@dataclass(frozen=True, slots=True)
class Designed:
    """The result of a designer's `attempt`th design, 0 where it has made none.

    `spec` is None where the goal is too vague (`question` says what is unclear), where nothing is built because of
    `missing` parts, or where the last design can't be read as a spec. `findings` are those of the last design. `parts`
    are those of the goal that aren't missing, with the members that do them.
    """

    spec: TeamSpec | None
    missing: tuple[MissingPart, ...] = ()
    question: str = ""
    attempt: int = 0
    findings: tuple[Finding, ...] = ()
    parts: tuple[PartReport, ...] = ()


_DESIGNED: Final = TypeAdapter(Designed)
_RECORDED: Final = {"spec", "missing", "findings", "parts"}


async def design_team(request: BuildRequest, world: TeamWorld, base: TeamSpec | None, run: BuildRun) -> Designed:
    """Return a team for the goal, or why there is none. `base` is the spec that is changed, None for a new team.

    What is made of an answer is recorded, so that a resumed build has the same design. Raises what `run` raises.
    """
    request = request.model_copy(update={"goal": storable_text(request.goal)})
    design = _Design(request, world, SpecWriter(request, world, base), run)
    may_ask = run.may_ask
    await design.search("found", request.goal, request.goal)
    document = await design.ask("design", () if may_ask else [Section("answer", _UNKNOWN)])
    told: list[Section] = []
    if document.asks and may_ask:
        answer = run.clarify(QUESTION, document.question, document.options[:_MOST_OPTIONS])
        told = [answer_section(document.question, answer)]
        if answer:
            await design.search("found_for_answer", f"{request.goal}\n{answer}", answer)
        document = await design.ask("answered", told)
    if document.asks:
        return Designed(None, question=document.question)
    designed = await design.judged(document, 1)
    while designed.findings and designed.attempt <= REPAIRS and not _is_refused(request, designed):
        repair = [*told, *repair_sections(document, designed.findings)]
        document = await design.ask(f"repair_{designed.attempt}", repair)
        designed = await design.judged(document, designed.attempt + 1)
    return Designed(None, designed.missing, "", designed.attempt) if _is_refused(request, designed) else designed


def _is_refused(request: BuildRequest, designed: Designed) -> bool:
    return bool(designed.missing) and not request.partial


@dataclass(slots=True)
class _Design:
    """One design, with what was found for its goal."""

    request: BuildRequest
    world: TeamWorld
    writer: SpecWriter
    run: BuildRun
    selection: Selection = field(default_factory=Selection)
    candidates: Sequence[Candidate] = ()
    asked: set[str] = field(default_factory=set[str])  # the places of parts that went back to the designer

    async def search(self, step: str, goal: str, text: str) -> None:
        """Find what serves the goal, and the parts of `text`."""
        parts, only = parts_of(text), self.request.constraints.servers
        texts = searched_texts(parts)
        found = await self.run.candidates(step, [goal, *texts], _WIDE if only else SHORTLIST)
        of_goal, *of_texts = [[one for one in ranking if _is_permitted(one, only)] for ranking in found]
        ranked = max(len({tool.server for tool in self.run.tools().values()}), len(found[0]))
        searched = dict(zip(texts, of_texts, strict=False))  # an earlier version searched the parts alone
        self.selection = select(parts, of_goal, searched, ranked)
        self.candidates = shortlist(self.selection.parts, of_goal, MOST_CANDIDATES)

    async def ask(self, step: str, further: Sequence[Section]) -> DesignDocument:
        """Return the designer's answer to the goal and to further sections."""
        sections = goal_sections(self.request, self.selection, self.candidates, self.writer.base)
        return await self.run.ask(step, _PROMPT, [*sections, *further], DesignDocument)

    async def judged(self, document: DesignDocument, attempt: int) -> Designed:
        """Return the design of a document with what is wrong with it; its events are emitted once."""
        step = f"designed_{attempt}"
        recorded: Mapping[str, Any] | None = self.run.recorded(step)
        if recorded:
            designed = _DESIGNED.validate_python({**recorded, "attempt": attempt})
            self.asked |= {one.path for one in designed.findings if one.rule in (_UNSERVED, _DOUBTED)}
            return designed
        spec, findings = await asyncio.to_thread(self._spec, document)
        missing, doubts = self._accounted(document, last=attempt > REPAIRS, is_readable=spec is not None)
        served = self._served(document, spec, missing)
        designed = Designed(spec, missing, "", attempt, (*findings, *doubts), served)
        path = self.run.origin.path
        events: list[AnyEvent] = [Design(path=path, attempt=attempt, missing=list(missing), **_shown(document, spec))]
        if not _is_refused(self.request, designed):  # else parts of the goal are missing, whatever the checks find
            found = [CheckFinding(**asdict(one)) for one in designed.findings]
            events.append(Checks(path=path, attempt=attempt, findings=found))
        self.run.record(step, _DESIGNED.dump_python(designed, mode="json", include=_RECORDED), *events)
        return designed

    def _served(
        self, document: DesignDocument, spec: TeamSpec | None, missing: Sequence[MissingPart]
    ) -> tuple[PartReport, ...]:
        """Return the parts that aren't missing, with the members that do them, as the designer says it."""
        pairs = list(zip(document.members, spec.members if spec else (), strict=False))
        left_out = {part.part for part in missing}
        return tuple(
            PartReport(part=part.text, members=tuple(made.name for draft, made in pairs if number in draft.parts))
            for number, part in enumerate(self.selection.parts, 1)
            if part.text not in left_out
        )

    def _accounted(
        self, document: DesignDocument, *, last: bool, is_readable: bool
    ) -> tuple[tuple[MissingPart, ...], Sequence[Finding]]:
        """Return the parts that are missing by what the designer says, and what goes back to it, each once.

        What a member claims then counts, whatever the search found and `missing` names. A part that none claims is
        missing. `missing` has numbers or texts of parts; another text names all parts that none claims.
        """
        parts = dict(enumerate(self.selection.parts, 1))
        does = {number for member in document.members for number in member.parts} & parts.keys()
        names = {name: number for number, part in parts.items() for name in (str(number), part.text)}
        named = {names.get(text, _OTHER) for text in map(str.strip, document.missing) if text}
        missing, doubts = list[MissingPart](), list[Finding]()
        if named & does or (named and does == parts.keys()):
            doubts.append(_CONTRADICTION)
        for number, part in parts.items():
            place, is_claimed = f"parts[{number}]", number in does
            is_new = is_readable and not last and place not in self.asked
            if not is_claimed and (named & {number, _OTHER} or (is_readable and not is_new)):
                missing.append(part.missing)
            elif not is_claimed or part.fit == "none":
                doubts.append(_doubt(place, part, is_claimed=is_claimed))
        doubts = [one for one in doubts if is_readable and not last and one.path not in self.asked]
        self.asked |= {one.path for one in doubts}
        return tuple(missing), doubts

    def _spec(self, document: DesignDocument) -> tuple[TeamSpec | None, list[Finding]]:
        try:
            spec = self.writer.spec(document)
        except TeamInvalidError as error:
            return None, list(error.findings)
        rules = WITHOUT_EXAMPLES if document.examples is None else DESIGN_RULES
        found = [*checked(spec, self.world, rules), *self._beyond_constraints(spec)]
        written = len(spec.examples) - len(self.request.cases)
        criteria = {name for example in spec.examples[:written] for name in example.criteria}
        return spec, [of_cases(finding, written, len(criteria)) for finding in found]

    def _beyond_constraints(self, spec: TeamSpec) -> list[Finding]:
        """Return the members that use a server which the caller has not permitted for this team."""
        only = self.request.constraints.servers
        found = list[Finding]()
        for number, member in enumerate(spec.members):
            star = self.world.teams.get(member.team or "")
            used = {tool.partition(".")[0] for tool in star.tools} if star else {member.server} - {None}
            if only and not used <= {*only}:
                reason = f"{member.name!r} uses {', '.join(sorted(map(str, used - {*only})))}, which isn't permitted."
                remedy = f"Use only these servers: {', '.join(only)}."
                found.append(Finding(f"members[{number}]", "constraints", reason, remedy))
        return found


def _doubt(place: str, part: PartFit, *, is_claimed: bool) -> Finding:
    if not is_claimed:
        reason = f"No member does {part.text!r}, and `missing` doesn't name it."
        return Finding(place, _UNSERVED, reason, "Give its number to the member that does it, or to `missing`.")
    near = f"; nearest are {', '.join(part.nearest)}" if part.nearest else ""
    remedy = "Keep its number at the member that does it, with the tools for it, or move it to `missing`."
    return Finding(place, _DOUBTED, f"The search found nothing for {part.text!r}{near}.", remedy)


def _is_permitted(candidate: Candidate, only: Sequence[str]) -> bool:
    servers = {candidate.server} if candidate.server else {tool.server for tool in candidate.tools}
    return not only or servers <= {*only}


def _shown(document: DesignDocument, spec: TeamSpec | None) -> Mapping[str, Any]:
    """Return what the event of a design shows; of a document that is not a spec, what was written."""
    written = spec or document
    members = [
        DesignedMember(
            name=one.name, role=one.role, server=one.server or None, team=one.team or None, tools=list(one.tools)
        )
        for one in written.members
    ]
    return {"team": written.name, "purpose": written.purpose, "members": members}
