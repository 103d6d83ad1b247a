"""Settings from environment variables and `starling.yaml`. No other module reads the environment."""

import os
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from starling.core.closed_document import ClosedDocument
from starling.core.fit import TOOL_RESULT
from starling.core.governance import GovernanceTable
from starling.core.prompts import PROMPT_NAMES
from starling.core.settings.client import default_data_dir
from starling.core.settings.sources import EnvironmentSource
from starling.core.tool_calls import ApprovalPolicy

_HOST: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?")


def _parts(value: object) -> object:
    """Split `a:b, c:d` into its parts, such as a model and its fallbacks, in order."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


_List = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parts)]
"""Texts that a variable has with commas between them."""
_LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(lambda level: str(level).upper())]


def environment() -> Mapping[str, str]:
    """Return the environment that `${VAR}` in server configurations refers to."""
    return os.environ  # noqa: TID251 - the one place


class ProviderSettings(ClosedDocument):
    """A custom OpenAI-compatible endpoint: `providers.<name>` adds the models `<name>:<model>`.

    `api` is the protocol: `/chat/completions` or `/responses` below `base_url`. `lacks` names features that are not to
    be tried, for an endpoint that ignores them without refusing them.
    """

    base_url: str
    api_key: SecretStr | None = None
    api: Literal["chat_completions", "responses"] = "chat_completions"
    lacks: tuple[Literal["tools", "json_schema", "json_object"], ...] = ()


class Limits(ClosedDocument):
    """Limits of runs and workers. A caller may request lower limits, never higher ones."""

    run_seconds: float = Field(default=300, description="Time limit of a run.", gt=0, le=86_400)
    model_call_seconds: float = Field(default=60, description="Time limit of a model call.", gt=0)
    model_wait_seconds: float = Field(default=60, description="Wait of a run for failing models; 0: none.", ge=0)
    tool_call_seconds: float = Field(default=30, description="Time limit of a tool call.", gt=0)
    database_seconds: float = Field(default=60, description="How long a start waits for Postgres.", ge=0)
    server_start_seconds: float = Field(default=20, description="Time limit of the start of an MCP server.", gt=0)
    tool_calls_per_task: int = Field(default=48, description="Tool calls of a task.", ge=1)
    tasks_per_plan: int = Field(default=24, description="Tasks of a plan.", ge=1)
    run_tokens: int = Field(
        default=200_000, description="Tokens of a run, then a person is asked for more; 0: no limit.", ge=0
    )
    tool_iterations: int = Field(default=3, description="Turns of an agent with tools, in one attempt.", ge=1, le=50)
    max_attempts: int = Field(default=2, description="Attempts at a task.", ge=1, le=10)
    supervisor_calls: int = Field(default=6, description="Decisions of a supervisor.", ge=1, le=50)
    shortlist: int = Field(
        default=12, description="Agents that a decision is shown, besides built-in and named ones.", ge=1, le=500
    )
    tool_result_chars: int = Field(
        default=TOOL_RESULT, description="A longer result is cut and stored as an artifact.", ge=200
    )
    artifact_bytes: int = Field(default=2**24, description="Size of one artifact, text or binary; 0 stores none.", ge=0)
    tenant_artifact_bytes: int = Field(default=10**9, description="Size of all artifacts of a tenant.", ge=0)
    max_output_tokens: int = Field(default=4_096, description="Tokens of an answer of a model.", ge=16)
    max_history: int = Field(default=10, description="Messages of the conversation that a supervisor is shown.", ge=0)
    worker_context_messages: int = Field(
        default=5, description="Messages of the conversation that an agent is shown.", ge=0
    )
    input_chars: int = Field(default=100_000, description="Characters of a request.", ge=1)
    teams_per_tenant: int = Field(default=200, description="Teams of a tenant that are not archived.", ge=1)
    runs_per_tenant: int = Field(default=64, description="Runs of a tenant at a time, over all workers.", ge=1)
    queued_runs_per_tenant: int = Field(
        default=1_000, description="Runs of a tenant that wait; then requests are answered with 429.", ge=1
    )
    runs_per_worker: int = Field(default=48, description="Runs of a worker at a time.", ge=1)
    tenant_share: float = Field(
        default=0.75, description="Share of the runs of one worker that one tenant may have.", gt=0, le=1
    )
    lease_seconds: float = Field(
        default=15, description="Length of the lease of a run; after it another worker continues the run.", gt=0.5
    )
    crashes_per_run: int = Field(
        default=3, description="Crashes of a run alone in a process, after which its status is `parked`.", ge=1
    )
    drain_seconds: float = Field(default=20, description="Time for steps to finish when a worker stops.", ge=0)
    interrupt_seconds: float = Field(default=86_400, description="Time limit for an answer to an interrupt.", gt=0)
    stream_write_seconds: float = Field(
        default=30, description="Time after which a reader that reads nothing is disconnected.", gt=0
    )
    max_clarifications: int = Field(default=2, description="Questions to the user of a run.", ge=0)
    server_sessions: int = Field(
        default=256,
        description="Sessions with MCP servers that a process keeps open; then the one idle for longest is closed.",
        ge=1,
    )
    sessions_per_server: int = Field(default=4, description="Sessions with one server.", ge=1)
    session_idle_seconds: float = Field(default=600, description="Time after which an idle session is closed.", gt=0)
    server_memory_bytes: int = Field(
        default=2**33, description="Memory of all server processes of a process; 0: no limit.", ge=0
    )
    memory_bytes_per_server: int = Field(
        default=2**31, description="Memory of one session's processes; 0: no limit.", ge=0
    )

    @property
    def tenant_runs_per_worker(self) -> int:
        """Return how many runs of one tenant a worker executes at a time."""
        return max(1, int(self.runs_per_worker * self.tenant_share))


def _setting(variable: str, default: Any, meaning: str, *, name: str = "", also: str = "", **options: Any) -> Any:
    """Return the field of a setting: by its environment variable, or by its name in `starling.yaml`.

    That name is the variable in lower case without `STARLING_`, or `name`. `also` is another variable for it.
    """
    names = filter(None, (variable, also, name or variable.lower().removeprefix("starling_")))
    given = {} if default is ... else {"default": default}
    return Field(**given, validation_alias=AliasChoices(*names), description=meaning, **options)


class Settings(BaseSettings):
    """All settings: environment variables first, then `starling.yaml`, then defaults."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, populate_by_name=True, env_ignore_empty=True)
    _file_values: ClassVar[Mapping[str, Any]] = {}  # content of the settings file
    settings_file: ClassVar[Path | None] = None

    database_url: SecretStr | None = _setting(
        "DATABASE_URL",
        None,
        "Address of Postgres, also with several hosts; PostgreSQL ≥ 16 with pgvector ≥ 0.8.2. Without it "
        "`starling up` starts its embedded Postgres.",
    )
    database_direct_url: SecretStr | None = _setting(
        "DATABASE_DIRECT_URL", None, "The same server without the transaction pooler; `DATABASE_URL` by default."
    )
    data_dir: Path = _setting(
        "STARLING_DATA_DIR",
        ...,
        "Data folder of the embedded Postgres, the local token and addresses of running platforms.",
        default_factory=default_data_dir,
    )
    host: str = _setting(
        "STARLING_HOST",
        "127.0.0.1",
        "Address on which the API listens; on any but a loopback address every request needs a key.",
    )
    port: int = _setting("PORT", 8000, "Port of the API; 0 selects a free one.", ge=0, le=65_535)
    log_level: _LogLevel = _setting(
        "LOG_LEVEL",
        "INFO",
        "`DEBUG`, `INFO`, `WARNING` or `ERROR`; logs go to stderr. Commands that run no service use `WARNING` "
        "by default.",
    )
    log_format: Literal["auto", "json", "text"] = _setting(
        "LOG_FORMAT", "auto", "`json`, `text`, or `auto`: text on a terminal, else JSON."
    )
    worker_port: int | None = _setting(
        "STARLING_WORKER_PORT",
        None,
        "Port on which `starling worker` serves health checks and metrics.",
        ge=0,
        le=65_535,
    )
    context_service_url: str | None = _setting(
        "CONTEXT_SERVICE_URL", None, "Service that receives audit events of runs, at `<url>/events`."
    )
    context_service_token: SecretStr | None = _setting(
        "CONTEXT_SERVICE_TOKEN", None, "Bearer token that the context service is sent."
    )
    execution_service_url: str | None = _setting(
        "EXECUTION_SERVICE_URL",
        None,
        "Service whose tools (`<url>/tools`, `<url>/execute`) are those of the server `execution_service`.",
    )
    execution_service_token: SecretStr | None = _setting(
        "EXECUTION_SERVICE_TOKEN", None, "Bearer token that the execution service is sent."
    )
    brainstem_url: str | None = _setting(
        "BRAINSTEM_URL",
        None,
        "Service that narrows what a request is allowed (`<url>/evaluate`); while it is away, CONSERVATIVE holds.",
    )
    brainstem_token: SecretStr | None = _setting("BRAINSTEM_TOKEN", None, "Bearer token that the brainstem is sent.")
    require_keys: bool = _setting(
        "STARLING_REQUIRE_KEYS", False, "Require a key for requests from this machine, too; set it behind a proxy."
    )
    rate_per_minute: int = _setting(
        "STARLING_RATE_PER_MINUTE", 600, "Requests per minute with one key, per API process.", ge=1
    )
    wrong_keys_per_minute: int = _setting(
        "STARLING_WRONG_KEYS_PER_MINUTE", 20, "Wrong keys per minute from one address, per API process.", ge=1
    )
    trusted_proxies: _List = _setting(
        "STARLING_TRUSTED_PROXIES",
        (),
        "Comma-separated addresses and networks of reverse proxies whose `X-Forwarded-For` names the address "
        "of a caller.",
    )
    url: str | None = _setting("STARLING_URL", None, "The API that commands use if none runs on the data folder.")
    api_key: SecretStr | None = _setting(
        "STARLING_API_KEY", None, "The key that `starling ask`, and commands that use `STARLING_URL`, send."
    )
    mcp_config: Path | None = _setting(
        "STARLING_MCP_CONFIG",
        None,
        "The `mcpServers` file; `starling up` uses `mcp.json` of the current folder by default.",
    )
    watch_mcp_config: bool = _setting(
        "STARLING_WATCH_MCP_CONFIG", False, "Reload when that file changes; the same as `starling up --watch`."
    )
    stdio_over_http: _List = _setting(
        "STARLING_STDIO_OVER_HTTP",
        (),
        "Comma-separated command lines, or folders that end with `/`, which keys with the scope `admin` may "
        "add as stdio servers over HTTP.",
    )
    allowed_addresses: _List = _setting(
        "STARLING_ALLOWED_ADDRESSES",
        (),
        "Comma-separated hosts and networks that servers which come over HTTP may have besides public addresses.",
    )
    server_user: str = _setting(
        "STARLING_SERVER_USER",
        "",
        "The user as whom root starts stdio servers, where that user reaches their command and files.",
    )
    ollama_base_url: str = _setting(
        "OLLAMA_BASE_URL", "http://localhost:11434", "Address of Ollama.", also="OLLAMA_HOST"
    )
    openai_api_key: SecretStr | None = _setting(
        "OPENAI_API_KEY", None, "Makes `openai:gpt-4.1-mini` the default model."
    )
    openai_base_url: str = _setting(
        "OPENAI_BASE_URL", "https://api.openai.com/v1", "Base URL of the provider `openai`."
    )
    model: _List = _setting(
        "STARLING_MODEL",
        (),
        "`provider:model` for all roles; fallbacks follow after commas. Default: OpenAI with a key, else "
        "`llama3.2:3b` of an Ollama that has it, else `offline:rules`.",
    )
    model_router: _List = _setting("STARLING_MODEL_ROUTER", (), "The same for the role `router`.")
    model_reasoning: _List = _setting("STARLING_MODEL_REASONING", (), "The same for the role `reasoning`.")
    model_coding: _List = _setting("STARLING_MODEL_CODING", (), "The same for the role `coding`.")
    model_supervisor: _List = _setting(
        "STARLING_MODEL_SUPERVISOR", (), "The same for supervisors. Default: the models of the role `reasoning`."
    )
    embeddings: str = _setting(
        "STARLING_EMBEDDINGS",
        "static",
        "The model whose vectors find agents and skills: `static` (built in), `provider:model`, or `off`.",
        min_length=1,
    )
    skills: bool = _setting(
        "STARLING_SKILLS", True, "Whether solved tasks are kept as skills and recalled for similar ones."
    )
    providers: dict[str, ProviderSettings] = _setting(
        "STARLING_PROVIDERS",
        ...,
        "OpenAI-compatible endpoints by name: `{NAME: {base_url, api_key, api, lacks}}`.",
        default_factory=dict,
    )
    langfuse_public_key: str | None = _setting(
        "LANGFUSE_PUBLIC_KEY", None, "With the secret key: traces are sent to Langfuse."
    )
    langfuse_secret_key: SecretStr | None = _setting("LANGFUSE_SECRET_KEY", None, "See `LANGFUSE_PUBLIC_KEY`.")
    langfuse_host: str = _setting(
        "LANGFUSE_HOST", "https://cloud.langfuse.com", "Address of Langfuse.", also="LANGFUSE_BASE_URL"
    )
    langfuse_prompt_label: str = _setting(
        "LANGFUSE_PROMPT_LABEL",
        "production",
        "The label of the prompts that are taken from Langfuse; empty in the file: none.",
    )
    prompt_names: dict[str, str] = _setting(
        "STARLING_PROMPT_NAMES",
        ...,
        "Names of prompts in Langfuse that differ from `agent_orchestrator` (`supervisor`) and `agent_NAME`, "
        "by our name.",
        default_factory=dict,
    )
    prompts_dir: Path | None = _setting(
        "STARLING_PROMPTS_DIR", None, "A folder with a file `NAME.md` for each prompt that differs from the program's."
    )
    otlp_endpoint: str | None = _setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        None,
        "Collector for traces over OTLP/HTTP, used if Langfuse is not set, such as `http://localhost:4318`.",
        name="otlp_endpoint",
    )
    otlp_headers: SecretStr | None = _setting(
        "OTEL_EXPORTER_OTLP_HEADERS", None, "Headers for that collector: `name=value,name=value`.", name="otlp_headers"
    )
    trace_content: bool = _setting("STARLING_TRACE_CONTENT", True, "Whether traces contain inputs and outputs.")
    approval: ApprovalPolicy = _setting(
        "STARLING_APPROVAL",
        "never",
        "Which calls of servers without an `approval` of their own need a person: `never`, `unsafe` or `always`.",
    )
    governance: GovernanceTable | None = _setting(
        "STARLING_GOVERNANCE",
        None,
        "What requests are allowed by mode and channel; without it the table in force stays, `{}` is the default.",
    )
    limits: Limits = _setting("STARLING_LIMITS", ..., "Limits of runs and workers: see below.", default_factory=Limits)

    @property
    def data_dir_is_explicit(self) -> bool:
        """Return whether the folder was set; a default folder may be replaced by one that Postgres can access."""
        return "data_dir" in self.model_fields_set

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ip_network(network, strict=False)  # its error names the value
        return value

    @field_validator("allowed_addresses")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not _HOST.fullmatch(host):
                ip_network(host, strict=False)  # its error names the value
        return value

    @field_validator("ollama_base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        """Complete what Ollama itself takes, such as `0.0.0.0` or `:8080`."""
        found = re.fullmatch(r"(\[.*\]|[^:/]*):?(\d*)/?", value)
        return f"http://{found[1] or 'localhost'}:{found[2] or 11434}" if found else value

    @property
    def langfuse_names(self) -> Mapping[str, str]:
        """Return the name that each prompt has in Langfuse, by our own."""
        given = {"supervisor": "agent_orchestrator", **self.prompt_names}
        return {name: given.get(name, f"agent_{name}") for name in PROMPT_NAMES}

    @field_validator("prompt_names")
    @classmethod
    def _known_prompts(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(value.keys() - set(PROMPT_NAMES)):
            raise ValueError(f"no prompt has the name {unknown[0]}: there are {', '.join(PROMPT_NAMES)}")
        if "" in value.values():
            raise ValueError("a name in Langfuse must not be empty")
        return value

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: object, **__: object
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvironmentSource(settings_cls), InitSettingsSource(settings_cls, dict(cls._file_values))


def secret_variables() -> frozenset[str]:
    """Return the environment variables of settings that hold secrets."""
    aliases = [
        field.validation_alias
        for name, field in Settings.model_fields.items()
        if name == "providers" or SecretStr in (field.annotation, *get_args(field.annotation))
    ]
    names = {str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices}
    return frozenset(name for name in names if name.isupper())
