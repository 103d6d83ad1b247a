"""Settings: environment variables over one `starling.yaml`. Nobody else reads the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from starling.core.errors import ConfigurationError


def environment() -> Mapping[str, str]:
    """Return the environment that `${VAR}` in server configurations refers to."""
    return os.environ  # noqa: TID251 - the one place


class ProviderSettings(BaseModel):
    """An OpenAI-compatible endpoint of one's own: `providers.<name>` makes `<name>:<model>` usable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str
    api_key: SecretStr | None = None


class Limits(BaseModel):
    """What bounds a run. A caller may ask for less, never for more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_seconds: float = Field(default=300, gt=0, le=86_400)
    model_call_seconds: float = Field(default=60, gt=0)
    tool_call_seconds: float = Field(default=30, gt=0)
    server_start_seconds: float = Field(default=20, gt=0)
    tool_iterations: int = Field(default=3, ge=1, le=50)
    server_grace_seconds: float = Field(default=3, gt=0)  # that a start waits for servers slower than the others
    max_attempts: int = Field(default=2, ge=1, le=10)
    supervisor_calls: int = Field(default=6, ge=1, le=50)
    graph_steps: int = Field(default=200, ge=5, le=10_000)  # two for each round of tasks, three around them
    parallel_tasks: int = Field(default=8, ge=1, le=64)
    tool_result_chars: int = Field(default=20_000, ge=200)
    max_output_tokens: int = Field(default=4_096, ge=16)
    max_history: int = Field(default=10, ge=0)
    worker_context_messages: int = Field(default=5, ge=0)
    input_chars: int = Field(default=100_000, ge=1)
    runs_per_tenant: int = Field(default=64, ge=1)
    runs_per_worker: int = Field(default=48, ge=1)
    lease_seconds: float = Field(default=15, gt=0.5)
    sessions_per_server: int = Field(default=4, ge=1)
    session_idle_seconds: float = Field(default=600, gt=0)


def _default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "starling"  # noqa: TID251


class Settings(BaseSettings):
    """Everything that can be set, from the environment first, then `starling.yaml`, then defaults."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, yaml_file_encoding="utf-8", populate_by_name=True)

    database_url: SecretStr | None = Field(default=None, validation_alias=AliasChoices("DATABASE_URL", "database_url"))
    database_direct_url: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("DATABASE_DIRECT_URL", "database_direct_url")
    )
    data_dir: Path = Field(
        default_factory=_default_data_dir, validation_alias=AliasChoices("STARLING_DATA_DIR", "data_dir")
    )
    host: str = Field(default="127.0.0.1", validation_alias=AliasChoices("STARLING_HOST", "host"))
    port: int = Field(default=8000, ge=0, le=65_535, validation_alias=AliasChoices("PORT", "port"))
    log_level: str = Field(default="INFO", validation_alias=AliasChoices("LOG_LEVEL", "log_level"))
    mcp_config: Path | None = Field(default=None, validation_alias=AliasChoices("STARLING_MCP_CONFIG", "mcp_config"))
    ollama_base_url: str = Field(
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", validation_alias=AliasChoices("LOG_FORMAT", "log_format")
    )
    context_service_url: str | None = Field(
        default=None, validation_alias=AliasChoices("CONTEXT_SERVICE_URL", "context_service_url")
    )
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
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict, validation_alias=AliasChoices("STARLING_PROVIDERS", "providers")
    )
    limits: Limits = Field(default_factory=Limits, validation_alias=AliasChoices("STARLING_LIMITS", "limits"))

    @property
    def data_dir_is_explicit(self) -> bool:
        """Whether somebody named the folder; the default may be replaced by one that Postgres can reach."""
        return "data_dir" in self.model_fields_set

    @field_validator("model", "model_router", "model_reasoning", "model_coding", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`a:b, c:d` is a model and its fallbacks, in order."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
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
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load_settings(file: Path | None = None, **overrides: Any) -> Settings:
    """Read the environment and `file` (default `starling.yaml` here, if it exists).

    Raises ConfigurationError with one line for each thing that is wrong.
    """
    path = file or Path("starling.yaml")
    if file is not None and not file.is_file():
        raise ConfigurationError(f"There is no settings file {file}.", "Check the path given with --settings.")

    class FromFile(Settings):
        model_config = SettingsConfigDict(yaml_file=path)

    try:
        return FromFile(**overrides)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigurationError(f"The settings are wrong: {wrong}.", f"Correct the environment or {path}.") from None
    except ValueError as error:  # the YAML itself can't be read
        raise ConfigurationError(f"{path} can't be read: {error}.", "Correct the file.") from None
