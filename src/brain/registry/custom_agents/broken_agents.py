"""Which custom agents a manifest leaves without what they need."""

from collections.abc import Mapping

from brain.registry.custom_agents.binding import degradation, select_tools
from brain.registry.custom_agents.repository import AgentRepository
from brain.registry.custom_agents.service import pinned_agents
from brain.registry.custom_agents.validation import offered
from brain.registry.manifest import Manifest


async def broken_agents(agents: AgentRepository, manifest: Manifest) -> Mapping[str, str]:
    """Return the agents of all tenants that can't work with what there would be, as `tenant/name`, each with why."""
    if not manifest.agents:
        return {}
    configs = await agents.pinned(manifest.agents.values())
    reasons = {
        f"{pin.tenant}/{pin.name}": degradation(
            config, select_tools(config.tools, offered(manifest, pin.tenant)), pinned_agents(manifest, pin.tenant)
        )
        for pin, config in configs.items()
    }
    return {name: reasons[name] for name in sorted(reasons) if reasons[name]}
