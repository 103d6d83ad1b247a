"""The invariants of builds of teams: what is stored, activated and audited of them, and that trials change nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence

from starling.core.json import as_read
from starling.core.runs import RunStatus
from starling.core.teams.spec import TeamSpec
from tests.chaos.cluster import EFFECT_SERVERS, TENANTS
from tests.chaos.observations import Invariant, Observations, Row, grouped, is_in_trial

_CHANGING = ("put", "charge")
_BUILDS_VERSIONS = ("team", "version")


def no_two_unfinished_runs_build_one_name(found: Observations) -> Iterator[tuple[str, str]]:
    """From its acceptance to its end a run is the only one that builds or proves the team of its name."""
    unfinished: dict[tuple[str, str], str] = {}
    for change in found.changes:
        run = found.run_of.get(change["run_id"])
        build: Row | None = run and run.get("build")
        if not (run and build and (name := build.get("name"))):
            continue
        place, ended = (run["tenant"], name), RunStatus(change["new_status"]).terminal
        other = unfinished.get(place)
        if ended and other == run["id"]:
            del unfinished[place]
        elif not ended and unfinished.setdefault(place, run["id"]) != run["id"]:
            yield run["id"], f"builds {name} while the run {other} does"


def built_versions_are_stored_whole_and_once(found: Observations) -> Iterator[tuple[str, str]]:
    built = [row for row in found.versions if row["built_by"]]
    for (run_id, path), count in Counter((row["built_by"], row["built_at_path"]) for row in built).items():
        if count > 1:
            yield run_id, f"stored {count} versions in the task {path}"
    for row in built:
        spec, proof = TeamSpec.model_validate(as_read(row["spec"])), _object(row["proof"])
        if not spec.hash == row["hash"] == proof.get("spec_hash"):
            yield (
                row["built_by"],
                f"{_version(row)} has the hash {row['hash']}, a spec of {spec.hash}, the proof {proof}",
            )
        if (spec.name, row["proven_state"]) != (row["name"], proof.get("state")) or not row["goal"]:
            yield row["built_by"], f"{_version(row)} is of {spec.name}, {row['proven_state']}, for {row['goal']!r}"


def builds_tell_what_is_stored(found: Observations) -> Iterator[tuple[str, str]]:
    """What a stream says was published is there, and a build that succeeded has published a version."""
    stored = {(row["tenant"], row["name"], row["version"]): row for row in found.versions}
    for run in found.runs:
        told = [event["data"] for event in found.events_of.get(run["id"], ()) if event["type"] == "published"]
        for data in told:
            row = stored.get((run["tenant"], data["team"], data["version"]))
            if row is None or (row["built_by"] != run["id"] and not _is_proof(run)):
                yield run["id"], f"published {data}, and stored is {row and _version(row)}"
            if data["state"] == "active" and row and not row["activated_at"]:
                yield run["id"], f"{_version(row)} is said to be active, and never was"
        if run.get("build") and run["status"] == "succeeded" and not told:
            yield run["id"], "succeeded and published nothing"


def the_active_epoch_pins_the_active_versions(found: Observations) -> Iterator[tuple[str, str]]:
    """A team has one active version at most, and is part of the epoch exactly while it has one."""
    active = [row for row in found.versions if row["state"] == "active"]
    for name, count in Counter((row["tenant"], row["name"]) for row in active).items():
        if count > 1:
            yield "", f"{'/'.join(name)} has {count} active versions"
    pinned = {team: star for team, star in found.pinned_teams.items() if team.partition("/")[0] in TENANTS}
    stored = {f"{row['tenant']}/{row['name']}": row["star_hash"] for row in active}
    for team in pinned.keys() | stored.keys():
        if pinned.get(team) != stored.get(team):
            yield "", f"{team} is pinned as {pinned.get(team)}, and its active version is {stored.get(team)}"


def trials_change_nothing(found: Observations) -> Iterator[tuple[str, str]]:
    """What a trial would change doesn't reach a server, the ledger or the skills."""
    told = (event for event in found.events if event["type"] == "tool_start" and is_in_trial(event["data"]["path"]))
    own = (event for event in told if event["data"]["name"].partition(".")[0] in EFFECT_SERVERS)
    tried = {event["data"]["args"]["what"]: event["run_id"] for event in own}
    for line in found.effects:
        if line["tool"] in _CHANGING and line["what"] in tried:
            yield tried[line["what"]], f"{line['tool']} {line['what']} of a trial {line['at']}"
    for row in found.ledger:
        if is_in_trial(row.get("path", "")):
            yield row["run_id"], f"a trial left the ledger row {row['path']}"
    for skill in found.skills:
        if is_in_trial(skill["source_path"] or ""):
            yield skill["source_run"], f"a trial left the skill {skill['id']} of {skill['source_path']}"


def audit_has_every_change_of_a_built_team(found: Observations) -> Iterator[tuple[str, str]]:
    """Each version that was built, proved and activated has its entries, and each entry its version."""
    entries = grouped(({**row, "place": _place(row)} for row in found.audit), "place")
    versions = {(row["tenant"], row["name"], row["version"]): row for row in found.versions}
    for place, row in versions.items():
        actions = Counter(entry["action"] for entry in entries.get(place, ()))
        if row["built_by"] and (actions["team.build"] != 1 or not actions["team.prove"]):
            yield row["built_by"], f"{_version(row)} was built, and audited is {dict(actions)}"
        if bool(row["activated_at"]) != bool(actions["team.activate"] + actions["team.rollback"]):
            yield row["built_by"] or "", f"{_version(row)} is {row['state']}, and audited is {dict(actions)}"
    for place, audited in entries.items():
        for entry in audited:
            row, of = versions.get(place), entry["detail"].get("run_id")
            if row is None or (entry["action"] == "team.build" and (row["built_by"], row["hash"]) != (
                of, entry["detail"]["hash"],
            )):  # fmt: skip
                yield of or "", f"{entry['action']} of {place} is audited, and stored is {row and _version(row)}"


def activations_are_proven_or_approved(found: Observations) -> Iterator[tuple[str, str]]:
    """What a build activates is approved by the key that the entry names, or proven by it and nobody was asked.

    A later proof of the active version may fail.
    """
    asked = {row["run_id"]: row for row in found.activations}
    proofs = [entry for entry in found.audit if entry["action"] == "team.prove"]
    proven = {(each["detail"]["run_id"], _place(each)) for each in proofs if each["detail"].get("state") == "proven"}
    for entry in found.audit:
        run_id = entry["detail"].get("run_id", "")
        if entry["action"] != "team.activate" or not run_id:
            continue
        if question := asked.get(run_id):
            approved = question["state"] == "resolved" and _object(question["payload"]).get("approved")
            if (
                not approved
                or found.history.activations.get(run_id) is False
                or question["answered_by"] != entry["actor"]
            ):
                yield (
                    run_id,
                    f"was activated by {entry['actor']}, and {question['answered_by']} said {question['payload']}",
                )
        elif (run_id, _place(entry)) not in proven:
            yield run_id, f"{_place(entry)} was activated without a proof, and nobody was asked"


def _object(value: Row | None) -> Row:
    return value or {}


def _is_proof(run: Row) -> bool:
    return bool(run.get("build")) and run["build"]["kind"] not in _BUILDS_VERSIONS


def _place(entry: Row) -> tuple[str, str, int]:
    return entry["detail"].get("tenant", entry["tenant"]), entry["target"], entry["detail"].get("version", 0)


def _version(row: Row) -> str:
    return f"{row['tenant']}/{row['name']}@{row['version']}"


BUILD_INVARIANTS: Sequence[Invariant] = (
    no_two_unfinished_runs_build_one_name,
    built_versions_are_stored_whole_and_once,
    builds_tell_what_is_stored,
    the_active_epoch_pins_the_active_versions,
    trials_change_nothing,
    audit_has_every_change_of_a_built_team,
    activations_are_proven_or_approved,
)
