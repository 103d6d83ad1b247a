"""Differences between two manifests, as plans print them and epochs store them."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from brain.registry.manifest import Manifest, ServerEntry

_NOTHING = ServerEntry(config_hash="", source="file", state="ready", description="", tools={})


class Names(BaseModel):
    """Added, changed and removed names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Changes(BaseModel):
    """All differences; `tools` has one entry for each server whose tools, pins or effects differ.

    `details` says of each changed server what differs besides its tools: `config`, `settings` of single tools,
    `source`, `state`, `description`, `tenants`. `broken_teams` are those that couldn't work any more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: Names = Names()
    details: dict[str, tuple[str, ...]] = {}
    tools: dict[str, Names] = {}
    agents: Names = Names()
    teams: Names = Names()
    prompts: Names = Names()
    broken_teams: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.servers, self.agents, self.teams, self.prompts))


def difference(before: Manifest, after: Manifest) -> Changes:
    """Return the changes from one manifest to the other; false only if the manifests are equal."""
    servers = _names(before.servers, after.servers)
    details = {name: _details(before.servers[name], after.servers[name]) for name in servers.changed}
    tools = {name: _tools(before, after, name) for name in (*servers.added, *servers.changed, *servers.removed)}
    return Changes(
        servers=servers,
        details={name: found for name, found in sorted(details.items()) if found},
        tools={name: found for name, found in sorted(tools.items()) if found},
        agents=_names(before.agent_contents(), after.agent_contents()),
        teams=_names(before.teams, after.teams),
        prompts=_names(_wordings(before), _wordings(after)),
    )


def _names(before: Mapping[str, object], after: Mapping[str, object]) -> Names:
    both = before.keys() & after.keys()
    return Names(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name] != after[name])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


def _wordings(manifest: Manifest) -> Mapping[str, object]:
    return {name: manifest.prompt_version(name) for name in manifest.prompts}


def _details(before: ServerEntry, after: ServerEntry) -> tuple[str, ...]:
    fields = {"config": "config_hash", "settings": "settings_hash"} | {
        name: name for name in ("source", "state", "description", "tenants")
    }
    return tuple(word for word, field in fields.items() if getattr(before, field) != getattr(after, field))


def _tools(before: Manifest, after: Manifest, server: str) -> Names:
    return _names(before.servers.get(server, _NOTHING).tools, after.servers.get(server, _NOTHING).tools)
