"""Each invariant of builds reports the violation that it is there for, and nothing in valid observations."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from starling.core.teams.spec import TeamSpec
from tests.chaos.build_invariants import BUILD_INVARIANTS
from tests.chaos.client_history import ClientHistory
from tests.chaos.observations import Observations

SPEC = TeamSpec.model_validate(
    {"name": "crew", "purpose": "Does.", "members": [{"name": "till_member", "role": "Clerk", "goal": "Does."}]}
)
TRIED = "t1.case-example_1/t1"
PUBLISHED: dict[str, Any] = {"path": "t1", "team": "crew", "version": 1}


def version(**different: Any) -> dict[str, Any]:
    return {
        "tenant": "alpha", "name": "crew", "version": 1, "spec": SPEC.model_dump(mode="json"), "hash": SPEC.hash,
        "state": "active", "star_hash": "star", "activated_at": 1, "goal": "Build it.", "built_by": "b",
        "built_at_path": "t1", "proof": {"state": "unproven", "spec_hash": SPEC.hash}, "proven_state": "unproven",
        **different,
    }  # fmt: skip


def entry(action: str, actor: str = "k1", **detail: Any) -> dict[str, Any]:
    made = {"tenant": "alpha", "version": 1, "run_id": "b", "hash": SPEC.hash, **detail}
    return {"tenant": "alpha", "actor": actor, "action": f"team.{action}", "target": "crew", "detail": made}


def event(kind: str, run_id: str = "b", **data: Any) -> dict[str, Any]:
    return {"run_id": run_id, "seq": 1, "type": kind, "data": data}


def run(run_id: str, name: str | None = "crew", kind: str = "team", tenant: str = "alpha") -> dict[str, Any]:
    return {"id": run_id, "tenant": tenant, "status": "succeeded", "build": {"kind": kind, "name": name}}


def lives(*moments: str) -> list[dict[str, Any]]:
    """The changes of runs in order, each as `run status`."""
    return [dict(zip(("run_id", "new_status"), moment.split(), strict=True)) for moment in moments]


@pytest.fixture
def valid() -> Observations:
    """What a build that was approved, and after it the build of a version, leave."""
    call: dict[str, Any] = {"call_id": "c", "name": "till.put", "args": {"what": "alpha-1.c1.t1.0.0"}, "path": TRIED}
    return Observations(
        history=ClientHistory(activations={"b": True}),
        runs=[run("b"), run("c", kind="version")],
        events=[
            event("tool_start", **call),
            event("published", **PUBLISHED, state="unproven"),
            event("published", **PUBLISHED, state="active"),
            event("published", "c", **PUBLISHED | {"version": 2}, state="draft"),
        ],
        changes=lives("b queued", "b running", "b succeeded", "c queued", "c cancelled", "c cancelled"),
        versions=[
            version(),
            version(version=2, built_by="c", state="draft", activated_at=None, star_hash=None)
            | {"proven_state": "failed", "proof": {"state": "failed", "spec_hash": SPEC.hash}},
        ],
        pinned_teams={"alpha/crew": "star", "another tenant/crew": "other"},
        audit=[
            entry("build"),
            entry("prove"),
            entry("activate", "admin"),
            entry("build", version=2, run_id="c"),
            entry("prove", version=2, run_id="c"),
        ],
        activations=[{"run_id": "b", "state": "resolved", "payload": {"approved": True}, "answered_by": "admin"}],
        effects=[{"at": "done", "tool": "put", "what": "alpha-2.t1.0.0"}],
        ledger=[{"run_id": "d", "path": "t1"}],
        skills=[{"id": "s", "source_run": "d", "source_path": "t1"}],
    )


def violated(found: Observations) -> set[str]:
    return {invariant.__name__ for invariant in BUILD_INVARIANTS if list(invariant(found))}


def of_version(**different: Any) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, versions=[version(**different), *found.versions[1:]])


def also(field: str, **row: Any) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, **{field: [*getattr(found, field), row]})


def without(field: str, index: int) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, **{field: [row for n, row in enumerate(getattr(found, field)) if n != index]})


def in_order(*moments: str) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, changes=lives(*moments))


def asked(**different: Any) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, activations=[{**found.activations[0], **different}])


def refused(found: Observations) -> Observations:
    found.history.activations["b"] = False
    return found


def pinned(teams: Mapping[str, str]) -> Callable[[Observations], Observations]:
    return lambda found: replace(found, pinned_teams=teams)


def test_sound_builds_violate_nothing(valid: Observations) -> None:
    assert violated(valid) == set()


def of_two_tenants(found: Observations) -> Observations:
    return replace(found, runs=[run("b"), run("c", tenant="beta")], changes=lives("b queued", "c queued"))


def without_names(found: Observations) -> Observations:
    return replace(found, runs=[run("b", None), run("c", None)], changes=lives("b queued", "c queued"))


def proven_and_nobody_asked(found: Observations) -> Observations:
    """The build proved what it activated; a proof after that failed."""
    later = entry("prove", run_id="d", state="failed")
    return replace(found, activations=[], audit=[*found.audit, entry("prove", state="proven"), later])


@pytest.mark.parametrize("change_allowed", [of_two_tenants, without_names, proven_and_nobody_asked])
def test_what_is_allowed_violates_nothing(
    valid: Observations, change_allowed: Callable[[Observations], Observations]
) -> None:
    changed = change_allowed(valid)

    assert not violated(changed) & {"no_two_unfinished_runs_build_one_name", "activations_are_proven_or_approved"}


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [
        (in_order("b queued", "c queued", "b succeeded", "c succeeded"), "no_two_unfinished_runs_build_one_name"),
        (in_order("b queued", "b waiting", "c queued"), "no_two_unfinished_runs_build_one_name"),
        (also("versions", **version(version=3)), "built_versions_are_stored_whole_and_once"),
        (of_version(hash="other"), "built_versions_are_stored_whole_and_once"),
        (of_version(proof=None), "built_versions_are_stored_whole_and_once"),
        (of_version(proof={"state": "unproven", "spec_hash": "x"}), "built_versions_are_stored_whole_and_once"),
        (of_version(proven_state="proven"), "built_versions_are_stored_whole_and_once"),
        (of_version(goal=None), "built_versions_are_stored_whole_and_once"),
        (of_version(name="other"), "built_versions_are_stored_whole_and_once"),
        (without("versions", 0), "builds_tell_what_is_stored"),
        (of_version(built_by="another"), "builds_tell_what_is_stored"),
        (of_version(activated_at=None), "builds_tell_what_is_stored"),
        (without("events", 3), "builds_tell_what_is_stored"),
        (also("versions", **version(version=3)), "the_active_epoch_pins_the_active_versions"),
        (pinned({}), "the_active_epoch_pins_the_active_versions"),
        (pinned({"alpha/crew": "another"}), "the_active_epoch_pins_the_active_versions"),
        (pinned({"alpha/crew": "star", "beta/crew": "star"}), "the_active_epoch_pins_the_active_versions"),
        (also("effects", at="arrived", tool="put", what="alpha-1.c1.t1.0.0"), "trials_change_nothing"),
        (also("ledger", run_id="b", path=TRIED), "trials_change_nothing"),
        (also("skills", id="s", source_run="b", source_path=TRIED), "trials_change_nothing"),
        (without("audit", 0), "audit_has_every_change_of_a_built_team"),
        (without("audit", 1), "audit_has_every_change_of_a_built_team"),
        (without("audit", 2), "audit_has_every_change_of_a_built_team"),
        (also("audit", **entry("build")), "audit_has_every_change_of_a_built_team"),
        (also("audit", **entry("activate", version=2)), "audit_has_every_change_of_a_built_team"),
        (also("audit", **entry("prove", version=3)), "audit_has_every_change_of_a_built_team"),
        (of_version(built_by="another"), "audit_has_every_change_of_a_built_team"),
        (refused, "activations_are_proven_or_approved"),
        (asked(answered_by="another"), "activations_are_proven_or_approved"),
        (asked(payload={"approved": False}), "activations_are_proven_or_approved"),
        (asked(state="expired", payload=None), "activations_are_proven_or_approved"),
        (without("activations", 0), "activations_are_proven_or_approved"),
    ],
)
def test_each_violation_of_builds_is_reported(
    valid: Observations, spoil: Callable[[Observations], Observations], invariant: str
) -> None:
    assert invariant in violated(spoil(deepcopy(valid)))
