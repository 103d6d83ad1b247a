"""Manifests and stars that a later version of the platform stored."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from brain.registry.manifest import AgentPin, Changes, Manifest, Names, ServerEntry, ToolPin, difference
from starling.core.governance import GovernanceTable
from starling.core.json import digest
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect

_PIN = {"hash": "p", "effect": "read", "later_pin": 1}
_SERVER = {"config_hash": "c", "source": "file", "state": "ready", "description": "", "tools": {"now": _PIN}}
_MANIFEST: dict[str, Any] = {
    "servers": {"time": {**_SERVER, "tenants": [], "later_server": [1]}},
    "builtins": ["coder"],
    "prompts": {},
    "agents": {"red/a": {"tenant": "red", "name": "a", "hash": "h", "later_agent": {"x": None}}},
    "teams": {},
    "later": {"kind": "new"},
}


def test_manifest_with_unknown_fields_is_read_and_keeps_them_and_its_hash() -> None:
    manifest = Manifest.model_validate(_MANIFEST)

    assert manifest.servers["time"].tools["now"].hash == "p"
    assert manifest.model_dump(mode="json") == _MANIFEST
    assert manifest.hash == digest(_MANIFEST)


def test_manifest_made_of_one_with_unknown_fields_keeps_those_of_what_it_does_not_change() -> None:
    manifest = Manifest.model_validate(_MANIFEST).model_copy(update={"builtins": ("coder", "generalist")})

    assert manifest.model_dump(mode="json") == {**_MANIFEST, "builtins": ["coder", "generalist"]}


def test_table_of_governance_changes_the_hash_of_a_manifest_only_where_it_says_something() -> None:
    table = GovernanceTable.model_validate({"modes": {"MODERATE": {"seconds": 60}}})
    plain = Manifest.model_validate(_MANIFEST)

    governed = plain.model_copy(update={"governance": table})

    assert plain.model_copy(update={"governance": GovernanceTable()}).hash == plain.hash == digest(_MANIFEST)
    assert Manifest.model_validate(governed.model_dump(mode="json")) == governed
    assert governed.model_dump(mode="json") == {**_MANIFEST, "governance": {"modes": {"MODERATE": {"seconds": 60.0}}}}
    assert difference(plain, governed).governance == Names(added=("modes.MODERATE.seconds",))


def test_star_with_unknown_fields_keeps_its_hash() -> None:
    stored = {**StarSpec(name="crew").model_dump(mode="json"), "later": True}

    assert StarSpec.model_validate(stored).hash == digest(stored)


NAMES = st.sampled_from("abcd")
HASHES = st.sampled_from(["1", "2"])
PINS = st.builds(ToolPin, hash=HASHES, effect=st.sampled_from(list(Effect)))
SERVERS = st.builds(
    ServerEntry,
    config_hash=HASHES,
    source=st.sampled_from(["file", "api"]),
    state=st.sampled_from(["ready", "degraded"]),
    description=HASHES,
    tools=st.dictionaries(NAMES, PINS, max_size=3),
    tenants=st.sampled_from([(), ("red",), ("red", "blue")]),
)
AGENTS = st.builds(AgentPin, tenant=st.just("red"), name=NAMES, hash=HASHES)
MANIFESTS = st.builds(
    Manifest,
    servers=st.dictionaries(NAMES, SERVERS, max_size=4),
    builtins=st.sampled_from([(), ("coder",), ("coder", "generalist")]),
    prompts=st.dictionaries(NAMES, HASHES, max_size=2),
    agents=st.dictionaries(NAMES.map("red/{}".format), AGENTS, max_size=2),
    teams=st.dictionaries(NAMES.map("red/{}".format), HASHES, max_size=2),
)


def led(names: Names, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What `before` becomes where only the named things are taken from `after`."""
    kept = {name: value for name, value in before.items() if name not in names.removed}
    return kept | {name: after[name] for name in (*names.added, *names.changed)}


def one(**server: Any) -> Manifest:
    fields: dict[str, Any] = {"config_hash": "1", "source": "file", "state": "ready", "description": "", "tools": {}}
    return Manifest(servers={"a": ServerEntry(**fields | server)})


@given(MANIFESTS)
def test_nothing_differs_from_itself(manifest: Manifest) -> None:
    assert not difference(manifest, manifest)
    assert difference(manifest, manifest) == Changes()


@given(MANIFESTS, MANIFESTS)
def test_what_is_named_leads_from_one_to_the_other(before: Manifest, after: Manifest) -> None:
    found = difference(before, after)

    assert bool(found) == (before != after)
    assert led(found.servers, before.servers, after.servers) == after.servers
    assert led(found.prompts, before.prompts, after.prompts) == after.prompts
    assert led(found.teams, before.teams, after.teams) == after.teams
    assert led(found.agents, dict(before.agent_contents()), dict(after.agent_contents())) == after.agent_contents()


@given(MANIFESTS, MANIFESTS)
def test_every_change_of_a_tool_is_named(before: Manifest, after: Manifest) -> None:
    found = difference(before, after)

    for server in before.servers.keys() | after.servers.keys():
        old, new = (
            manifest.servers[server].tools if server in manifest.servers else {} for manifest in (before, after)
        )
        assert led(found.tools.get(server, Names()), old, new) == new


@given(MANIFESTS, MANIFESTS)
def test_the_way_back_is_the_same_the_other_way_round(before: Manifest, after: Manifest) -> None:
    there, back = difference(before, after), difference(after, before)

    assert (there.servers.added, there.servers.changed) == (back.servers.removed, back.servers.changed)
    assert there.details == back.details


@given(MANIFESTS, MANIFESTS)
def test_changes_are_read_as_they_were_stored(before: Manifest, after: Manifest) -> None:
    found = difference(before, after)

    assert Changes.model_validate(found.model_dump(mode="json")) == found


def test_a_changed_server_says_what_about_it_is_another_thing() -> None:
    found = difference(one(), one(config_hash="2", tenants=("red",), state="degraded"))

    assert found.servers == Names(changed=("a",))
    assert found.agents == Names(changed=("mcp_agent_a",))
    assert found.details == {"a": ("config", "state", "tenants")}


def test_a_changed_effect_is_a_changed_tool() -> None:
    read, unsafe = (one(tools={"look": ToolPin(hash="1", effect=effect)}) for effect in (Effect.READ, Effect.UNSAFE))

    assert difference(read, unsafe).tools == {"a": Names(changed=("look",))}
