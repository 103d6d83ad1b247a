"""Settings from environment variables and `starling.yaml`. No other module reads the environment."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, cast, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from starling.core.errors import ConfigurationError
from starling.core.prompts import PROMPT_NAMES
from starling.core.settings.client import default_data_dir
from starling.core.tool_calls import ApprovalPolicy
from starling.core.validation_errors import fault_text


class EnvironmentSource(EnvSettingsSource):
    """Environment variables, one per setting; an error names the variable that can't be read."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Decode a variable that contains JSON. Raises ConfigurationError."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            raise ConfigurationError(
                f"{_names_of(field_name, field)[0]} in the environment is not JSON: {error}.",
                'Write an object, such as {"name": "value"}.',
            ) from None

    def _extract_field_info(
        self, field: FieldInfo, field_name: str, model_config: Mapping[str, Any] | None = None
    ) -> list[tuple[str, str, bool]]:
        # Lower-case names are for the file only: variables such as HOST and MODEL belong to other programs.
        return [item for item in super()._extract_field_info(field, field_name, model_config) if item[0].isupper()]


def _names_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the names of a setting: its variables first, then its name in the file."""
    alias = field.validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else (name,)


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """Where each setting was set: command-line options, environment variables, else `file`."""

    fields: Mapping[str, FieldInfo]
    options: Mapping[str, object]
    variables: Mapping[str, object]
    file: str

    def describe(self, location: tuple[int | str, ...]) -> str:
        """Return where the value at the location of a pydantic error was set, by the name used there."""
        variable, *inner = map(str, location)
        names = {alias: name for name, field in self.fields.items() for alias in _names_of(name, field)}
        name = names.get(variable, variable)
        if name in self.options:
            return f"--{name.replace('_', '-')}"
        if variable in self.variables and _contains(self.variables[variable], inner):
            return ".".join((variable, *inner))
        return f"{'.'.join((name, *inner))} in {self.file}"


def _contains(value: object, inner: list[str]) -> bool:
    """Return whether a variable sets the value at this path; otherwise the value comes from the file."""
    return not inner or not isinstance(value, dict) or inner[0] in cast("dict[str, object]", value)


def environment() -> Mapping[str, str]:
    """Return the environment that `${VAR}` in server configurations refers to."""
    return os.environ  # noqa: TID251 - the one place


class ProviderSettings(BaseModel):
    """A custom OpenAI-compatible endpoint: `providers.<name>` adds the models `<name>:<model>`.

    `api` is the protocol: `/chat/completions` or `/responses` below `base_url`. `lacks` names features that are not to
    be tried, for an endpoint that ignores them without refusing them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str
    api_key: SecretStr | None = None
    api: Literal["chat_completions", "responses"] = "chat_completions"
    lacks: tuple[Literal["tools", "json_schema", "json_object"], ...] = ()


_REMOVED_LIMITS: Final = frozenset(
    {
        "calls_per_server",
        "crews_at_once",
        "graph_steps",
        "header_bytes",
        "header_seconds",
        "http_connections",
        "isolated_runs",
        "parallel_tasks",
        "proof_threshold",
        "server_grace_seconds",
        "session_ping_seconds",
        "stream_ping_seconds",
        "tool_calls_per_answer",
        "tools_shown",
    }
)  # settings of 0.1
_log = logging.getLogger(__name__)


class Limits(BaseModel):
    """Limits of runs and workers. A caller may request lower limits, never higher ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_seconds: float = Field(default=300, gt=0, le=86_400)
    model_call_seconds: float = Field(default=60, gt=0)
    tool_call_seconds: float = Field(default=30, gt=0)
    database_seconds: float = Field(default=60, ge=0)  # wait for Postgres at start-up
    server_start_seconds: float = Field(default=20, gt=0)
    tool_calls_per_task: int = Field(default=48, ge=1)
    tasks_per_plan: int = Field(default=24, ge=1)
    run_tokens: int = Field(default=200_000, ge=0)  # then a person is asked for more; 0: no limit
    tool_iterations: int = Field(default=3, ge=1, le=50)
    max_attempts: int = Field(default=2, ge=1, le=10)
    supervisor_calls: int = Field(default=6, ge=1, le=50)
    shortlist: int = Field(default=12, ge=1, le=500)  # agents that a decision is shown, besides built-in and named ones
    tool_result_chars: int = Field(default=20_000, ge=200)  # a longer result is cut and stored as an artifact
    artifact_bytes: int = Field(default=2**24, ge=0)  # size of one artifact; 0 stores none
    tenant_artifact_bytes: int = Field(default=10**9, ge=0)  # size of all artifacts of a tenant
    max_output_tokens: int = Field(default=4_096, ge=16)
    max_history: int = Field(default=10, ge=0)
    worker_context_messages: int = Field(default=5, ge=0)
    input_chars: int = Field(default=100_000, ge=1)
    teams_per_tenant: int = Field(default=200, ge=1)  # that are not archived
    runs_per_tenant: int = Field(default=64, ge=1)  # that go on at a time, over all workers
    queued_runs_per_tenant: int = Field(default=1_000, ge=1)  # then requests are answered with 429
    runs_per_worker: int = Field(default=48, ge=1)
    tenant_share: float = Field(default=0.75, gt=0, le=1)  # of the runs of one worker, for one tenant
    lease_seconds: float = Field(default=15, gt=0.5)
    crashes_per_run: int = Field(default=3, ge=1)  # while it was alone in a process; then the status is `parked`
    drain_seconds: float = Field(default=20, ge=0)  # time for steps to finish when a worker stops
    interrupt_seconds: float = Field(default=86_400, gt=0)  # time limit for an answer to an interrupt
    stream_write_seconds: float = Field(default=30, gt=0)  # after which a reader that reads nothing is disconnected
    max_clarifications: int = Field(default=2, ge=0)
    server_sessions: int = Field(default=256, ge=1)  # open in a process; then the one idle for longest is closed
    sessions_per_server: int = Field(default=4, ge=1)
    session_idle_seconds: float = Field(default=600, gt=0)
    server_memory_bytes: int = Field(default=2**33, ge=0)  # of all server processes of a process; 0: no limit
    memory_bytes_per_server: int = Field(default=2**31, ge=0)  # of one session's processes; 0: no limit

    @model_validator(mode="before")
    @classmethod
    def _ignore_removed(cls, values: object) -> object:
        """Ignore limits that an earlier version had, with a warning."""
        if not isinstance(values, dict):
            return values
        given = cast("dict[str, object]", values)
        for name in sorted(given.keys() & _REMOVED_LIMITS):
            _log.warning("The setting limits.%s was removed and is ignored: its value is fixed now.", name)
        return {name: value for name, value in given.items() if name not in _REMOVED_LIMITS}

    @property
    def tenant_runs_per_worker(self) -> int:
        """Return how many runs of one tenant a worker executes at a time."""
        return max(1, int(self.runs_per_worker * self.tenant_share))


class Settings(BaseSettings):
    """All settings: environment variables first, then `starling.yaml`, then defaults."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    _file_values: ClassVar[Mapping[str, Any]] = {}  # content of the settings file

    database_url: SecretStr | None = Field(default=None, validation_alias=AliasChoices("DATABASE_URL", "database_url"))
    database_direct_url: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("DATABASE_DIRECT_URL", "database_direct_url")
    )
    data_dir: Path = Field(
        default_factory=default_data_dir, validation_alias=AliasChoices("STARLING_DATA_DIR", "data_dir")
    )
    host: str = Field(default="127.0.0.1", validation_alias=AliasChoices("STARLING_HOST", "host"))
    port: int = Field(default=8000, ge=0, le=65_535, validation_alias=AliasChoices("PORT", "port"))
    log_level: str = Field(default="INFO", validation_alias=AliasChoices("LOG_LEVEL", "log_level"))
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", validation_alias=AliasChoices("LOG_FORMAT", "log_format")
    )
    worker_port: int | None = Field(
        default=None, ge=0, le=65_535, validation_alias=AliasChoices("STARLING_WORKER_PORT", "worker_port")
    )
    context_service_url: str | None = Field(
        default=None, validation_alias=AliasChoices("CONTEXT_SERVICE_URL", "context_service_url")
    )
    require_keys: bool = Field(default=False, validation_alias=AliasChoices("STARLING_REQUIRE_KEYS", "require_keys"))
    rate_per_minute: int = Field(  # requests with one key, per API process
        default=600, ge=1, validation_alias=AliasChoices("STARLING_RATE_PER_MINUTE", "rate_per_minute")
    )
    wrong_keys_per_minute: int = Field(  # from one address, per API process
        default=20,
        ge=1,
        validation_alias=AliasChoices("STARLING_WRONG_KEYS_PER_MINUTE", "wrong_keys_per_minute"),
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(  # addresses and networks; see `address_of`
        default=(), validation_alias=AliasChoices("STARLING_TRUSTED_PROXIES", "trusted_proxies")
    )
    url: str | None = Field(  # where commands look for the API if none runs on their data folder
        default=None, validation_alias=AliasChoices("STARLING_URL", "url")
    )
    api_key: SecretStr | None = Field(  # sent by `starling ask`
        default=None, validation_alias=AliasChoices("STARLING_API_KEY", "api_key")
    )
    mcp_config: Path | None = Field(default=None, validation_alias=AliasChoices("STARLING_MCP_CONFIG", "mcp_config"))
    watch_mcp_config: bool = Field(
        default=False, validation_alias=AliasChoices("STARLING_WATCH_MCP_CONFIG", "watch_mcp_config")
    )
    stdio_over_http: Annotated[tuple[str, ...], NoDecode] = Field(  # commands that documents over HTTP may have started
        default=(), validation_alias=AliasChoices("STARLING_STDIO_OVER_HTTP", "stdio_over_http")
    )
    server_user: str = Field(  # as whom root starts stdio servers, where that user reaches what they need
        default="", validation_alias=AliasChoices("STARLING_SERVER_USER", "server_user")
    )
    ollama_base_url: str = Field(
        default="http://localhost:11434", validation_alias=AliasChoices("OLLAMA_BASE_URL", "ollama_base_url")
    )
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("OPENAI_API_KEY", "openai_api_key")
    )
    openai_base_url: str = Field(
        default="https://api.openai.com/v1", validation_alias=AliasChoices("OPENAI_BASE_URL", "openai_base_url")
    )
    model: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=AliasChoices("STARLING_MODEL", "model")
    )
    model_router: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=AliasChoices("STARLING_MODEL_ROUTER", "model_router")
    )
    model_reasoning: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=AliasChoices("STARLING_MODEL_REASONING", "model_reasoning")
    )
    model_coding: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=AliasChoices("STARLING_MODEL_CODING", "model_coding")
    )
    embeddings: str = Field(  # static, off, or provider:model
        default="static", min_length=1, validation_alias=AliasChoices("STARLING_EMBEDDINGS", "embeddings")
    )
    skills: bool = Field(  # whether solved tasks are kept as skills and recalled for similar ones
        default=True, validation_alias=AliasChoices("STARLING_SKILLS", "skills")
    )
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict, validation_alias=AliasChoices("STARLING_PROVIDERS", "providers")
    )
    langfuse_public_key: str | None = Field(
        default=None, validation_alias=AliasChoices("LANGFUSE_PUBLIC_KEY", "langfuse_public_key")
    )
    langfuse_secret_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("LANGFUSE_SECRET_KEY", "langfuse_secret_key")
    )
    langfuse_host: str = Field(
        default="https://cloud.langfuse.com",
        validation_alias=AliasChoices("LANGFUSE_HOST", "LANGFUSE_BASE_URL", "langfuse_host"),
    )
    langfuse_prompt_label: str = Field(  # of the versions of prompts that are used; empty: none of Langfuse's
        default="production", validation_alias=AliasChoices("LANGFUSE_PROMPT_LABEL", "langfuse_prompt_label")
    )
    prompt_names: dict[str, str] = Field(  # names of prompts in Langfuse that differ from their defaults
        default_factory=dict, validation_alias=AliasChoices("STARLING_PROMPT_NAMES", "prompt_names")
    )
    prompts_dir: Path | None = Field(  # a folder with files of prompts that differ from the program's
        default=None, validation_alias=AliasChoices("STARLING_PROMPTS_DIR", "prompts_dir")
    )
    otlp_endpoint: str | None = Field(
        default=None, validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint")
    )
    otlp_headers: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_HEADERS", "otlp_headers")
    )
    trace_content: bool = Field(default=True, validation_alias=AliasChoices("STARLING_TRACE_CONTENT", "trace_content"))
    approval: ApprovalPolicy = Field(  # of calls of servers whose configuration has no `approval`
        default="never", validation_alias=AliasChoices("STARLING_APPROVAL", "approval")
    )
    limits: Limits = Field(default_factory=Limits, validation_alias=AliasChoices("STARLING_LIMITS", "limits"))

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

    @field_validator(
        "model", "model_router", "model_reasoning", "model_coding", "stdio_over_http", "trusted_proxies", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        """Split `a:b, c:d` into its parts, such as a model and its fallbacks, in order."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

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

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ValueError("must be DEBUG, INFO, WARNING or ERROR")
        return value.upper()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, EnvironmentSource(settings_cls), InitSettingsSource(settings_cls, dict(cls._file_values))


def secret_variables() -> frozenset[str]:
    """Return the environment variables of settings that hold secrets."""
    secret = [field for name, field in Settings.model_fields.items() if _is_secret(field) or name == "providers"]
    aliases = [field.validation_alias for field in secret]
    names = {str(name) for alias in aliases if isinstance(alias, AliasChoices) for name in alias.choices}
    return frozenset(name for name in names if name.isupper())


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def load_settings(file_values: Mapping[str, Any], file: str, **options: Any) -> Settings:
    """Merge command-line options, environment variables and the content of `file`, in this order of precedence.

    Raises ConfigurationError, which names each wrong value and where it was set.
    """

    class FromFile(Settings):
        _file_values: ClassVar[Mapping[str, Any]] = file_values

    try:
        return FromFile(**options)
    except ValidationError as error:
        origins = SettingOrigins(Settings.model_fields, options, EnvironmentSource(Settings)(), file)
        wrong = "; ".join(
            f"{origins.describe(item['loc'])}: {fault_text(item, 'setting')}{_meant(item['type'], item['loc'])}"
            for item in error.errors()
        )
        raise ConfigurationError(f"The settings are wrong: {wrong}.", "The README lists all settings.") from None


def _meant(fault: str, location: tuple[int | str, ...]) -> str:
    """Return which setting was probably meant by an unknown name."""
    known = Settings.model_fields if len(location) == 1 else Limits.model_fields
    near = get_close_matches(str(location[-1]), known, n=1) if fault == "extra_forbidden" else []
    return f" (did you mean {near[0]}?)" if near else ""
