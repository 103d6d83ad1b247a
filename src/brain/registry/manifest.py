"""The manifest, which is the content of an epoch and has a hash, and the differences between two of them."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from starling.core.governance import GovernanceTable
from starling.core.json import digest
from starling.core.llm import PromptVersion
from starling.core.tool_calls import Effect, ReviewPolicy
from starling.core.tools import ServerSource


def specialist_name(server: str) -> str:
    """Return the name of the agent that is made for a server."""
    return f"mcp_agent_{server}"


class _Part(BaseModel):
    # What a later version added is kept, so that its manifests have the same hash here and stay whole where one is
    # made of them; pyright refuses unknown fields in our code.
    model_config = ConfigDict(frozen=True, extra="allow")


def _unset(value: object) -> bool:
    """Whether a field is left out of the stored manifest, so that one without it has the hash that it always had."""
    return value is None or value == ""


class ToolPin(_Part):
    """A tool, pinned by the hash of its definition, and the effect class it has with us.

    `description` and the schemas are the admin's own, which agents see instead of the definition's; `reflect` is the
    review policy of its results. `declared` is set where an admin said that the tool is `unsafe`, which it is by
    default.
    """

    hash: str
    effect: Effect
    declared: bool | None = Field(default=None, exclude_if=_unset)
    description: str | None = Field(default=None, exclude_if=_unset)
    input_schema: dict[str, Any] | None = Field(default=None, exclude_if=_unset)
    output_schema: dict[str, Any] | None = Field(default=None, exclude_if=_unset)
    reflect: ReviewPolicy | None = Field(default=None, exclude_if=_unset)


class ServerEntry(_Part):
    """A server with its pinned tools. `config_hash` names its configuration, which is kept as long as the epoch.

    `settings_hash` names the settings of its tools that win over the configuration. `tenants` are those that see it;
    none means all.
    """

    config_hash: str
    source: ServerSource
    state: Literal["ready", "degraded"]
    description: str
    tools: dict[str, ToolPin]
    tenants: tuple[str, ...] = ()
    settings_hash: str = Field(default="", exclude_if=_unset)

    def seen_by(self, tenant: str) -> bool:
        """Whether a tenant sees it."""
        return not self.tenants or tenant in self.tenants


class PromptOrigin(_Part):
    """Where the text of a prompt is in Langfuse: the name and version of it, and the label that it was found by."""

    name: str
    version: int
    label: str


class AgentPin(_Part):
    """A custom agent of one tenant, pinned by the hash of its configuration."""

    tenant: str
    name: str
    hash: str


class Manifest(_Part):
    """Everything that a run pinned to the epoch works with, apart from what was taken away since.

    `prompts` are the hashes of texts; `prompt_origins` says of each that comes from Langfuse where it is there.
    `agents` are keyed by `tenant/name`, as are `teams`, whose values are the hashes of their star specs. `governance`
    is what runs are allowed; where it is left out, that is the default.
    """

    servers: dict[str, ServerEntry] = {}
    builtins: tuple[str, ...] = ()
    prompts: dict[str, str] = {}
    prompt_origins: dict[str, PromptOrigin] = Field(default={}, exclude_if=operator.not_)
    agents: dict[str, AgentPin] = {}
    teams: dict[str, str] = {}
    governance: GovernanceTable = Field(default=GovernanceTable(), exclude_if=lambda table: table == GovernanceTable())

    @property
    def hash(self) -> str:
        return digest(self.model_dump(mode="json"))

    def prompt_version(self, name: str) -> PromptVersion:
        """Return the pinned wording of a prompt. Raises KeyError."""
        origin = self.prompt_origins.get(name)
        if origin is None:
            return PromptVersion(name, self.prompts[name])
        return PromptVersion(name, self.prompts[name], "langfuse", origin.version, origin.label, origin.name)

    def tool_hashes(self) -> Mapping[str, str]:
        """Return the hash of every tool's definition, by its full name `server.tool`."""
        return {
            f"{server}.{tool}": pin.hash for server, entry in self.servers.items() for tool, pin in entry.tools.items()
        }

    def agent_contents(self) -> Mapping[str, object]:
        """Return every agent by name with what it is made of, in any form that compares."""
        specialists = {specialist_name(name): entry for name, entry in self.servers.items()}
        return {**specialists, **dict.fromkeys(self.builtins, ""), **self.agents}


@dataclass(frozen=True, slots=True)
class Epoch:
    """A numbered manifest."""

    number: int
    manifest: Manifest


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
    `source`, `state`, `description`, `tenants`. `broken_teams` are those that couldn't work any more. `governance`
    names the members of rows, by their places.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: Names = Names()
    details: dict[str, tuple[str, ...]] = {}
    tools: dict[str, Names] = {}
    agents: Names = Names()
    teams: Names = Names()
    prompts: Names = Names()
    broken_teams: tuple[str, ...] = ()
    governance: Names = Names()

    def __bool__(self) -> bool:
        return any((self.servers, self.agents, self.teams, self.prompts, self.governance))


def difference(before: Manifest, after: Manifest) -> Changes:
    """Return the changes from one manifest to the other; false only if the manifests are equal."""
    servers = _names(before.servers, after.servers)
    details = {name: _details(before.servers[name], after.servers[name]) for name in servers.changed}
    tools = {
        name: _names(before.servers.get(name, _NOTHING).tools, after.servers.get(name, _NOTHING).tools)
        for name in (*servers.added, *servers.changed, *servers.removed)
    }
    return Changes(
        servers=servers,
        details={name: found for name, found in sorted(details.items()) if found},
        tools={name: found for name, found in sorted(tools.items()) if found},
        agents=_names(before.agent_contents(), after.agent_contents()),
        teams=_names(before.teams, after.teams),
        prompts=_names(_wordings(before), _wordings(after)),
        governance=_names(before.governance.written(), after.governance.written()),
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
