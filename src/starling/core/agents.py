"""Configuration of a custom agent."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from starling.core.closed_document import ClosedDocument
from starling.core.json import digest, storable_text
from starling.core.tool_calls import ReviewPolicy
from starling.core.validation_errors import AGENT_NAME

SPECIALIST_PREFIX: Final = "mcp_agent_"
RESERVED: Final = frozenset({"architect", "supervisor", "qa"})
"""Names that no agent, no team and no member may have, beside those of builtins and of specialists."""


def like_a_specialist(name: str) -> bool:
    """Return whether a name is that of a server's specialist, or differs from such a name in its dashes only."""
    return name.replace("-", "_").startswith(SPECIALIST_PREFIX)


# Names with dashes are refused where an agent or a team is made: former versions stored some, which are still read.
def _check_not_reserved(name: str) -> str:
    if name.startswith(SPECIALIST_PREFIX):
        raise ValueError(f"names that begin with {SPECIALIST_PREFIX} are reserved for the specialists of servers")
    return name


def _normalize_model(name: str) -> str:
    """Return `provider:model` for `provider/model`; the part after the provider may contain both characters."""
    provider, slash, model = name.partition("/")
    return f"{provider}:{model}" if slash and ":" not in provider else name


type RuntimeName = Literal["native", "crewai"]
type AgentName = Annotated[str, StringConstraints(pattern=AGENT_NAME), AfterValidator(_check_not_reserved)]
type _Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(storable_text)]
type _Reference = Annotated[_Text, StringConstraints(max_length=200)]


type _PersonaText = Annotated[_Text, StringConstraints(max_length=4_000)]


class Persona(ClosedDocument):
    """Who an agent is. Nothing in it is evaluated."""

    role: Annotated[_Text, StringConstraints(max_length=300)] = Field(description="What the agent is, in a few words.")
    goal: _PersonaText = Field(description="What it works for.")
    backstory: _PersonaText | None = Field(default=None, description="What it knows and how it works.")


class LLMAgentConfig(BaseModel):
    """A custom agent: its instruction, model, tools and reviewer."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "release_notes",
                    "behavior_template": "You write release notes: short, in the present tense, for users.",
                    "tools": ["git.git_log", "github.*"],
                    "render_policy": "last_messages",
                }
            ]
        },
    )

    type: Literal["llm"] = "llm"
    id: AgentName = Field(description="Name of the agent, unique for your tenant.")
    llm_model: Annotated[_Reference, AfterValidator(_normalize_model)] | None = Field(
        default=None, description="`provider:model` or `provider/model`. Default: the model of its role."
    )
    behavior_template: Annotated[_Text, StringConstraints(max_length=20_000)] | None = Field(
        default=None, description="Instruction for the model, as plain text: nothing in it is evaluated."
    )
    tools: tuple[_Reference, ...] = Field(
        default=(),
        max_length=200,
        description="Full names `server.tool`, or `server.*`. An agent without tools only writes text.",
    )
    render_policy: _Reference | None = Field(
        default=None,
        description="How much of the conversation the agent gets: `last_messages` (default), `none`, `summary`, "
        "`full`, `last_n`, `tools_collapsed` or one of an installed package.",
    )
    enable_self_reflection: bool = Field(
        default=False, description="True: each result is reviewed, whatever any policy is. False: no override."
    )
    reflection_agent_id: AgentName | None = Field(
        default=None,
        description="Custom agent whose instruction and model are used to review each result of this one.",
    )
    reflect: ReviewPolicy | None = Field(
        default=None,
        exclude_if=lambda reflect: reflect is None,
        description="Which results are reviewed, where a tool has no policy of its own: `always`, `risky` (of tasks "
        "with calls that may change something) or `never`. None given: what the request says, else `always`.",
    )
    runtime: RuntimeName = Field(
        default="native",
        exclude_if=lambda runtime: runtime == "native",  # so that older configurations keep their hash
        description="What executes the agent. `crewai` needs the extra of that name; without it, `native` does.",
    )
    persona: Persona | None = Field(
        default=None, exclude_if=lambda persona: persona is None, description="Role, goal and backstory of the agent."
    )

    @property
    def hash(self) -> str:
        """Digest of the whole configuration, used as its version."""
        return digest(self.model_dump(mode="json"))

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers that the tools belong to, without duplicates."""
        return tuple(dict.fromkeys(tool.partition(".")[0] for tool in self.tools))
