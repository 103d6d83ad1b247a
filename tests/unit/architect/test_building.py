"""Builds from the request to the report: what is stored, who is asked, and what a resumed build doesn't repeat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from architect.building import Builder
from architect.repository import Creator, ProofSummary, TeamVersion
from architect.spec_format import team_of
from architect.team_store import BuiltTeam, PublishedVersion, TeamStore
from architect.team_world import TeamWorld
from starling.core.errors import ConflictError
from starling.core.events.stream import AnyEvent
from starling.core.json import JsonObject
from starling.core.principal import Principal
from starling.core.teams.building import Approval, BuildOrigin, BuildOutcome, BuildRequest, Section
from starling.core.teams.proofs import ProofReport, TrialCall, TrialRecord
from starling.core.teams.spec import Example
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect
from tests.support.in_memory_build import InMemoryBuild, tool, world_of
from tests.support.team_specs import member, spec_document

LOAD = tool("machine.load", "Show the load and health of this machine")
WRITE = tool("files.write_file", "Write a text into a file", Effect.UNSAFE, path={"type": "string"})
WORLD = world_of(LOAD, WRITE)
REQUEST = BuildRequest(goal="Watch the health of this machine and write the findings into a report file.")
DESIGN: Mapping[str, Any] = {
    "name": "health",
    "purpose": "Watches a machine.",
    "members": [
        {"name": "watcher", "role": "watches", "goal": "watch", "server": "machine", "parts": [1]},
        {"name": "writer", "role": "writes", "goal": "write", "server": "files", "parts": [2]},
    ],
    "examples": [
        {"request": "Show the load of this machine.", "must_call": ["machine.load"], "contains": ["Done"]},
        {
            "request": "Write the load into /tmp/report.txt.",
            "must_call": ["machine.load", "files.write_file"],
            "contains": ["Done"],
        },
    ],
}


class CutOffError(Exception):
    """The process ended here."""


@dataclass
class Steps:
    """Ends the process at its `last` step; without one, never."""

    last: int = -1
    taken: int = 0

    def take(self) -> None:
        if self.taken == self.last:
            raise CutOffError
        self.taken += 1


@dataclass
class MemoryStore(TeamStore):
    """Keeps what is published once for each build; the process may end before and after each change."""

    steps: Steps = field(default_factory=Steps)
    approval: str = "It may change something."
    refuses: bool = False
    published: list[BuiltTeam] = field(default_factory=list[BuiltTeam])
    active: list[str] = field(default_factory=list[str])
    versions: list[TeamVersion] = field(default_factory=list[TeamVersion])
    read: list[int | None] = field(default_factory=list[int | None])

    async def world(self, caller: Principal) -> TeamWorld:
        return WORLD

    async def version(self, caller: Principal, name: str, number: int | None) -> TeamVersion:
        self.read.append(number)
        return self.versions[(number or 0) - 1]

    async def publish(self, origin: BuildOrigin, built: BuiltTeam) -> PublishedVersion:
        self.steps.take()
        if not self.published:
            self.published.append(built)
        self.steps.take()
        return self._version()

    async def add_proof(
        self, origin: BuildOrigin, team: TeamVersion, proof: ProofReport
    ) -> tuple[PublishedVersion, bool]:
        raise NotImplementedError

    async def activate(self, origin: BuildOrigin, published: PublishedVersion, approval: Approval) -> PublishedVersion:
        self.steps.take()
        if self.refuses:
            raise ConflictError("It was archived meanwhile.")
        if not self.active:
            self.active.append(approval.by)
        self.steps.take()
        return self._version()

    def _version(self) -> PublishedVersion:
        team = self.published[0].spec
        stored = PublishedVersion("health", 1, "proven", team.hash, ("machine.load",), approval=self.approval)
        return replace(stored, state="active", epoch=7, approval="") if self.active else stored


@dataclass
class Build(InMemoryBuild):
    """A build whose trials succeed; what it records survives its process once it is flushed."""

    steps: Steps = field(default_factory=Steps)
    fails: bool = False
    decision: Approval = field(default_factory=lambda: Approval(approved=True, by="key_2"))
    tried: list[str] = field(default_factory=list[str])
    details: list[JsonObject] = field(default_factory=list[JsonObject])
    kept: tuple[dict[str, Any], list[AnyEvent]] = field(default_factory=lambda: ({}, []))

    async def ask[D: BaseModel](self, step: str, prompt: str, sections: Sequence[Section], document: type[D]) -> D:
        self.steps.take()
        return await super().ask(step, prompt, sections, document)

    async def try_case(self, star: StarSpec, case: Example) -> TrialRecord:
        self.steps.take()
        self.tried.append(case.id)
        if self.fails:
            return TrialRecord(path="t1", reply="", failure="It broke.")
        calls = tuple(TrialCall(tool=one, path="t1", status="succeeded", source="live") for one in case.must_call)
        return TrialRecord(path=f"t1.case-{case.id}", reply="Done.", calls=calls)

    def approve_activation(self, team: str, version: int, details: JsonObject) -> Approval:
        self.steps.take()
        self.details.append(details)
        return self.decision

    async def flush(self) -> None:
        self.steps.take()
        self.kept = dict(self.journal), [*self.events]


async def built(
    store: MemoryStore, run: Build | None = None, request: BuildRequest = REQUEST
) -> tuple[BuildOutcome, Build]:
    run = run or begun(store)
    return await Builder(store).build(request, run), run


def begun(store: MemoryStore, **fields: Any) -> Build:
    return Build((LOAD, WRITE), [DESIGN] * 3, steps=store.steps, **fields)


def version(number: int) -> TeamVersion:
    spec = team_of(spec_document(member(), name="health", purpose=f"Version {number}."))
    return TeamVersion(number, spec, spec.hash, "draft", Creator("key_1", None), datetime.now(UTC), None, None, None)


def shown(events: Sequence[AnyEvent]) -> list[str]:
    return [f"{event.type} {getattr(event, 'state', '')}".strip() for event in events]


async def test_proven_team_that_may_change_something_is_activated_by_the_admin_who_is_asked() -> None:
    store = MemoryStore()
    outcome, run = await built(store)

    assert (outcome.done, store.active) == (True, ["key_2"])
    assert outcome.text.startswith("health@1 is active from epoch 7 on.")
    assert run.details == [
        {
            "hash": store.published[0].spec.hash,
            "tools": ["machine.load"],
            "proof": "proven",
            "not_judged": [],
            "reason": "It may change something.",
        }
    ]
    assert shown(run.events) == ["design", "checks", "proof", "proof", "published proven", "published active"]


async def test_admin_who_is_asked_and_whoever_reads_the_report_see_the_part_that_no_case_tried() -> None:
    store = MemoryStore()
    watched = {**DESIGN, "examples": [DESIGN["examples"][0], {**DESIGN["examples"][0], "request": "Is it well?"}]}
    run = begun(store)
    run.answers = [watched]

    outcome, run = await built(store, run)

    doubt = f"No case tried the part {store.published[0].proof.parts[1].part!r} by live results."
    assert (run.details[0]["proof"], run.details[0]["not_judged"]) == ("unproven", [doubt])
    assert f"\nWhat nobody judged:\n- {doubt}\n" in outcome.text


async def test_proven_team_that_was_activated_when_it_was_published_needs_no_approval() -> None:
    store = MemoryStore(approval="", active=["key_1"])
    outcome, run = await built(store)

    assert (outcome.done, run.details) == (True, [])
    assert shown(run.events)[-1] == "published active"


@pytest.mark.parametrize("refused", ["by the admin", "by the store"])
async def test_team_that_is_not_activated_stays_stored_and_the_report_says_why(refused: str) -> None:
    store = MemoryStore(refuses=refused == "by the store")
    decision = Approval(approved=store.refuses, by="key_2", note="Not this week.")
    outcome, run = await built(store, begun(store, decision=decision))

    assert (outcome.done, store.active, len(store.published)) == (True, [], 1)
    assert outcome.text.endswith(
        "It could not be activated. It was archived meanwhile." if store.refuses else "was not approved: Not this week."
    )
    assert shown(run.events)[-1] == "published proven"


async def test_build_whose_proof_fails_is_no_success_and_keeps_its_version() -> None:
    store = MemoryStore(approval="")
    run = begun(store, fails=True)
    outcome, run = await built(store, run)

    assert (outcome.done, outcome.code, len(store.published)) == (False, "proof_failed", 1)
    assert store.published[0].proof.state == "failed"
    assert "The proof failed." in outcome.text


async def test_nobody_is_asked_about_a_team_that_is_only_to_be_stored() -> None:
    store = MemoryStore()
    outcome, run = await built(store, request=REQUEST.model_copy(update={"activate": False}))

    assert (outcome.done, run.details, store.active) == (True, [], [])


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ({**DESIGN, "members": DESIGN["members"][:1], "missing": [2]}, "capability_gap", "into a report file"),
        ({"question": "Which machine?"}, "goal_unclear", "Which machine?"),
        ({**DESIGN, "examples": []}, "team_invalid", "faults"),
    ],
)
async def test_nothing_is_stored_of_a_team_that_can_not_be_designed(
    answer: Mapping[str, Any], code: str, says: str
) -> None:
    store = MemoryStore()
    run = begun(store, may_be_asked=False)
    run.answers = [answer] * 3
    outcome, run = await built(store, run)

    assert (outcome.done, outcome.code, store.published, run.tried) == (False, code, [], [])
    assert says in outcome.text


async def test_build_that_ends_at_any_step_is_resumed_without_doing_anything_twice() -> None:
    whole = MemoryStore()
    expected, first = await built(whole)
    assert whole.steps.taken > 10

    for last in range(whole.steps.taken):
        store = MemoryStore(steps=Steps(last))
        run = begun(store)
        with pytest.raises(CutOffError):
            await built(store, run)
        journal, events = run.kept
        store.steps.last = -1
        resumed = begun(store, journal=dict(journal), events=[*events])
        outcome, resumed = await built(store, resumed)

        assert (outcome, shown(resumed.events)) == (expected, shown(first.events)), last
        assert (len(store.published), store.active) == (1, ["key_2"]), last
        assert {*resumed.tried}.isdisjoint(event.case for event in events if event.type == "proof"), last


async def test_resumed_build_of_a_version_changes_the_version_that_it_began_with() -> None:
    store = MemoryStore(versions=[version(1)])
    request = REQUEST.model_copy(update={"kind": "version", "name": "health"})
    outcome, run = await built(store, begun(store), request)
    store.versions.append(version(2))  # its own, before it was reported

    again, resumed = await built(store, begun(store, journal={**run.journal}), request)

    assert store.read == [None, 1]
    assert (again, resumed.asked) == (outcome, run.asked)


async def test_part_that_a_change_names_again_is_one_part() -> None:
    first, store = MemoryStore(), MemoryStore()
    await built(first)
    parts = first.published[0].proof.parts
    store.versions = [replace(version(1), proof=ProofSummary("proven", 1.0, "run_1", "trace_1", {}, parts))]

    await built(store, begun(store), REQUEST.model_copy(update={"kind": "version", "name": "health"}))

    assert store.published[0].proof.parts == parts
