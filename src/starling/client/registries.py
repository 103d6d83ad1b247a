"""The tools and agents of the active epoch, as views: servers, teams and custom agents change them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from starling.client.api import path_of
from starling.client.conversations import Client
from starling.core.errors import InvalidRequestError


class ToolRegistry:
    """The tools that runs can call. Without a client, that of the environment is used."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client

    def get_tools(self) -> Sequence[Mapping[str, Any]]:
        """Return the tools: `name` (in full), `description`, `input_schema`, `effect`."""
        self._client = self._client or Client()
        return self._client.get("/tools")["tools"]

    def get_tool_by_name(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool by its full name, or by its own if only one server has it; else None."""
        found = [tool for tool in self.get_tools() if name in (tool["name"], tool["name"].partition(".")[2])]
        return found[0] if len(found) == 1 else None

    def list_tools(self) -> Mapping[str, str]:
        """Return the descriptions of the tools by name."""
        return {tool["name"]: tool["description"] for tool in self.get_tools()}

    def register(self, tool: object) -> NoReturn:
        """Raise InvalidRequestError: tools come from servers."""
        raise InvalidRequestError(
            f"{tool!r} can't be registered here.", "Tools come from servers: `starling server add`."
        )


class AgentRegistry:
    """The agents that runs can use. Agents of a platform are made there, so it takes no factory."""

    def __init__(self, client: Client, agent_factory: object = None) -> None:
        del agent_factory
        self._client = client

    def get_agent(self, agent_id: str) -> Mapping[str, Any]:
        """Return an agent: `name`, `kind`, `description`, `state`, `tools`. Raises InvalidRequestError."""
        return self._client.get(path_of("agents", agent_id))["agent"]

    def list_agents(self) -> Mapping[str, str]:
        """Return the kinds of the agents by name."""
        return {agent["name"]: agent["kind"] for agent in self._client.get("/v1/agents")["agents"]}

    def register(self, agent: object, config: object = None) -> NoReturn:
        """Raise InvalidRequestError: agents are created on the platform."""
        text = f"{agent!r} can't be registered here."
        raise InvalidRequestError(text, "Create it: `starling agent create`, or `POST /v1/agents`.")


tool_registry: Final = ToolRegistry()
"""The tools of the platform that the environment names."""
