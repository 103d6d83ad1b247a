"""The configuration of an agent that a user makes."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from starling.core.json import digest, storable_text

AGENT_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,47}$"
SPECIALIST_PREFIX: Final = "mcp_agent_"


def _not_a_specialist(name: str) -> str:
    if name.startswith(SPECIALIST_PREFIX):
        raise ValueError(f"names that begin with {SPECIALIST_PREFIX} belong to the specialists of servers")
    return name


def _with_colon(name: str) -> str:
    """`provider/model` is another way to write `provider:model`; the model's own part may have both."""
    provider, slash, model = name.partition("/")
    return f"{provider}:{model}" if slash and ":" not in provider else name


type AgentName = Annotated[str, StringConstraints(pattern=AGENT_NAME), AfterValidator(_not_a_specialist)]
type _Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(storable_text)]
type _Reference = Annotated[_Text, StringConstraints(max_length=200)]


class LLMAgentConfig(BaseModel):
    """An agent as its user describes it: what it is told, what it may call, and who reviews it."""

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
    id: AgentName = Field(description="Its name, unique for your tenant.")
    llm_model: Annotated[_Reference, AfterValidator(_with_colon)] | None = Field(
        default=None, description="`provider:model` or `provider/model`; without it, the model that its role has."
    )
    behavior_template: Annotated[_Text, StringConstraints(max_length=20_000)] | None = Field(
        default=None, description="Its instruction, in plain words: nothing in it is evaluated."
    )
    tools: tuple[_Reference, ...] = Field(
        default=(), max_length=200, description="Full names `server.tool`, or `server.*`. Without tools, it writes."
    )
    render_policy: _Reference | None = Field(
        default=None, description="How it is shown the conversation: `last_messages` (default), `none` or `summary`."
    )
    enable_self_reflection: bool = Field(
        default=False, description="True: each result is reviewed, whatever else is set. False changes nothing."
    )
    reflection_agent_id: AgentName | None = Field(
        default=None, description="The custom agent whose instruction and model review this one's results."
    )

    @property
    def hash(self) -> str:
        """The digest of the whole configuration: its version."""
        return digest(self.model_dump(mode="json"))

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that its tools belong to, each once."""
        return tuple(dict.fromkeys(tool.partition(".")[0] for tool in self.tools))
