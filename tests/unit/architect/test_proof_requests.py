"""Requests for another proof: cases that can't show that a team works are refused before it is tried."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from architect.building import Builder
from architect.proof import case_faults, case_findings, with_cases
from architect.repository import Creator, TeamVersion
from architect.team_store import BuiltTeam, PublishedVersion, TeamStore
from architect.team_world import TeamWorld
from starling.core.errors import NotFoundError
from starling.core.principal import Principal
from starling.core.teams.building import Approval, BuildCase, BuildOrigin, BuildRequest
from starling.core.teams.proofs import ProofReport, TrialCall, TrialRecord
from starling.core.teams.spec import TeamSpec
from tests.support.scripted_trials import ScriptedTrials
from tests.support.team_specs import WORLD, grant, member, team_spec

LOG = "git.git_log"
CALLED = {"id": "called", "text": "It was read.", "kind": "tool_called", "value": LOG}
SAID = {"id": "said", "text": "It is said.", "kind": "text_contains", "value": "Done"}
LIVE = TrialRecord(path="t1", reply="Done.", calls=(TrialCall(tool=LOG, path="t1", status="succeeded", source="live"),))


def team(*examples: dict[str, Any]) -> TeamSpec:
    return team_spec(member(server="git", tools=[LOG]), criteria=[CALLED, SAID], examples=[*examples])


def example(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "input": f"What is {name}?", "criteria": ["called", "said"], "must_call": [LOG], **fields}


def case(**fields: Any) -> BuildCase:
    return BuildCase.model_validate({"input": "And then?", "criteria": [CALLED, SAID], "must_call": [LOG], **fields})


ODD = {"id": "odd", "text": "It is odd.", "kind": "text_contains", "value": "THEN"}


@pytest.mark.parametrize(
    ("examples", "cases", "faults"),
    [
        pytest.param([example("one"), example("two")], [], [], id="examples"),
        pytest.param([example("one")], [case()], [], id="example-and-case"),
        pytest.param([example("one")], [], [("few_cases", "examples")], id="one-example"),
        pytest.param([example("one")], [case(input="What is ONE?")], [("few_cases", "examples")], id="same-request"),
        pytest.param(
            [example("one"), example("two")],
            [case(), case(must_call=["git.absent"])],
            [("examples", "cases[1].must_call[0]")],
            id="tool-of-a-case",
        ),
        pytest.param(
            [example("one"), example("two")],
            [case(criteria=[CALLED, ODD])],
            [("trivial_criterion", "cases[0].criteria[1]")],
            id="text-of-the-request",
        ),
        pytest.param(
            [example("one"), example("two")],
            [case(criteria=[{**ODD, "value": None}])],
            [("criteria", "cases.criteria[0].value")],
            id="criterion-of-a-case",
        ),
    ],
)
def test_faults_of_cases_are_found_at_their_place(
    examples: list[dict[str, Any]], cases: list[BuildCase], faults: list[tuple[str, str]]
) -> None:
    found = case_findings(team(*examples), cases, WORLD)

    assert [(finding.rule, finding.path) for finding in found] == faults


def test_caller_case_with_the_criterion_of_an_example_shares_it() -> None:
    whole = with_cases(team(example("one")), [case(), case(criteria=[{**CALLED, "text": "Other."}])])

    assert [one.id for one in whole.criteria] == ["called", "said", "case_2-called"]
    assert [one.criteria for one in whole.examples] == [("called", "said"), ("called", "said"), ("case_2-called",)]


class OneTeam(TeamStore):
    """Keeps one version of one team, and its last proof."""

    def __init__(self, spec: TeamSpec, world: TeamWorld = WORLD, *, counts: bool = True) -> None:
        self.spec = spec
        self.known = world
        self.counts = counts
        self.proof: ProofReport | None = None

    async def world(self, caller: Principal) -> TeamWorld:
        del caller
        return self.known

    async def version(self, caller: Principal, name: str, number: int | None) -> TeamVersion:
        del number
        if name != self.spec.name:
            raise NotFoundError("team", name)
        maker, at = Creator(caller.key_id, None), datetime(2026, 1, 1, tzinfo=UTC)
        return TeamVersion(1, self.spec, self.spec.hash, "draft", maker, at, None, None, None)

    async def add_proof(
        self, origin: BuildOrigin, team: TeamVersion, proof: ProofReport
    ) -> tuple[PublishedVersion, bool]:
        del origin
        self.proof = proof
        return PublishedVersion(team.spec.name, 1, "proven", team.hash, ()), self.counts

    async def publish(self, origin: BuildOrigin, built: BuiltTeam) -> PublishedVersion:
        raise AssertionError(origin, built)

    async def activate(self, origin: BuildOrigin, published: PublishedVersion, approval: Approval) -> PublishedVersion:
        raise AssertionError(origin, published, approval)


async def proved(store: OneTeam, run: ScriptedTrials, *cases: BuildCase) -> tuple[bool, str, str]:
    request = BuildRequest(kind="proof", name="news", cases=cases)
    outcome = await Builder(store).build(request, run)
    return outcome.done, outcome.code, outcome.text


async def test_proof_with_too_few_cases_is_refused_before_any_trial() -> None:
    store, run = OneTeam(team(example("one"))), ScriptedTrials()

    done, code, text = await proved(store, run)

    assert (done, code) == (False, "team_invalid")
    assert text.startswith("news@1 was not tried")
    assert "`--case FILE`" in text
    assert "(few_cases)" in text
    assert (run.tried, store.proof) == ([], None)


async def test_proof_that_does_not_count_says_that_the_version_keeps_its_state() -> None:
    store = OneTeam(team(example("one")), counts=False)

    done, code, text = await proved(store, ScriptedTrials(trials={"one": LIVE, "case_1": LIVE}), case())

    assert (done, code) == (True, "")
    assert "The version keeps its earlier proof and its state" in text
    assert "starling team activate" not in text


async def test_case_of_the_caller_makes_a_proof_possible() -> None:
    store, run = OneTeam(team(example("one"))), ScriptedTrials(trials={"one": LIVE, "case_1": LIVE})

    done, _, text = await proved(store, run, case())

    assert store.proof
    assert (done, store.proof.state, len(run.tried)) == (True, "proven", 2)
    assert "Proof: 2 of 2 cases passed." in text


async def test_proof_of_a_team_whose_inner_team_is_archived_says_so() -> None:
    outer = team_spec(
        member(team="old_team"), criteria=[CALLED, SAID], examples=[example("one"), example("two", input="And now?")]
    )
    store, run = OneTeam(outer, replace(WORLD, inactive={"old_team": "archived"})), ScriptedTrials()

    done, code, text = await proved(store, run)

    assert (done, code, run.tried) == (False, "team_invalid", [])
    assert "members[0].team: The team 'old_team' is archived. `starling team activate old_team`" in text


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        pytest.param({}, "", id="sound"),
        pytest.param(
            {"must_call": ["git.git_lgo"]}, "cases[1].must_call[0]: There is no tool 'git.git_lgo'.", id="tool"
        ),
        pytest.param(
            {"fixtures": [{"tool": "files.raed_file", "result": 1}]},
            "cases[1].fixtures[0].tool: There is no tool 'files.raed_file'.",
            id="fixture",
        ),
        pytest.param(
            {"criteria": [{**CALLED, "id": "other", "value": "git.push"}]},
            "cases.criteria[2].value: There is no tool 'git.push'.",
            id="criterion",
        ),
        pytest.param(
            {"must_not_call": ["payroll.pay"]},
            "cases[1].must_not_call[0]: This key may not call 'payroll.pay'.",
            id="grant",
        ),
        pytest.param(
            {"criteria": [], "must_call": []}, "cases[1]: The example demands nothing of the answer,", id="no-demand"
        ),
    ],
)
def test_cases_that_no_team_could_be_tried_on_are_found_before_any_is_designed(
    fields: dict[str, Any], fault: str
) -> None:
    found = case_faults([case(), case(**fields)], replace(WORLD, grant=grant("git", "files")))

    assert len(found) == bool(fault)
    assert all(str(one).startswith(fault) for one in found)
