"""Which teams a manifest leaves without what they need."""

from collections.abc import Mapping

from brain.registry.custom_agents.validation import offered
from brain.registry.manifest import Manifest
from brain.registry.teams.binding import missing_tools
from brain.registry.teams.repository import StarRepository
from starling.core.teams.stars import StarSpec


async def broken_teams(stars: StarRepository, manifest: Manifest) -> Mapping[str, str]:
    """Return the teams of all tenants whose members would lack a server or tools, as `tenant/name`, each with why."""
    if not manifest.teams:
        return {}
    owners = {key: key.rpartition("/")[0] for key in manifest.teams}
    found = await stars.pinned({(owners[key], pin) for key, pin in manifest.teams.items()})
    offers = {tenant: _offer(manifest, tenant) for tenant in set(owners.values())}
    reasons = {
        key: _reason(found[owners[key], pin], offers[owners[key]]) for key, pin in sorted(manifest.teams.items())
    }
    return {key: reason for key, reason in reasons.items() if reason}


def _offer(manifest: Manifest, tenant: str) -> Mapping[str, frozenset[str]]:
    """Return the full names of the tools of each server that a tenant sees."""
    return {
        server: frozenset(f"{server}.{tool}" for tool in tools) for server, tools in offered(manifest, tenant).items()
    }


def _reason(star: StarSpec, offer: Mapping[str, frozenset[str]]) -> str:
    return " ".join(f"{name}: {reason}" for name, reason in missing_tools(star, offer).items())
