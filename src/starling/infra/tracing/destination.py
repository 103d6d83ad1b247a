"""Destination of traces: Langfuse, else an OTLP collector, else none."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.core.validation_errors import http_address


@dataclass(frozen=True, slots=True)
class Destination:
    """An OTLP/HTTP endpoint and its headers. `langfuse` is the address of the Langfuse behind it, empty for others."""

    traces: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    langfuse: str = ""


def destination_of(settings: Settings) -> Destination | None:
    """Return the destination in the settings, or None.

    Raises ConfigurationError for an invalid address or Langfuse without its package, because lost traces and scores
    would not be noticed later.
    """
    if settings.langfuse_public_key and settings.langfuse_secret_key:
        if find_spec("langfuse") is None:
            raise ConfigurationError(
                "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY are set, but the package langfuse isn't installed.",
                "Install it with `pip install 'starling-swarm[langfuse]'`, or unset both.",
            )
        address = http_address("LANGFUSE_HOST", settings.langfuse_host, "https://cloud.langfuse.com")
        login = f"{settings.langfuse_public_key}:{settings.langfuse_secret_key.get_secret_value()}"
        basic = b64encode(login.encode()).decode()
        headers = {"authorization": f"Basic {basic}", "x-langfuse-ingestion-version": "4"}
        return Destination(f"{address}/api/public/otel/v1/traces", headers, address)
    if settings.otlp_endpoint:
        given = settings.otlp_headers.get_secret_value() if settings.otlp_headers else ""
        endpoint = http_address("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otlp_endpoint, "http://localhost:4318")
        pairs = (
            part.partition("=") for part in given.split(",") if "=" in part
        )  # the form of OpenTelemetry's variables
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return Destination(f"{endpoint}/v1/traces", headers)
    return None


def langfuse_of(settings: Settings) -> Destination | None:
    """Return the destination in the settings if it is Langfuse. Raises ConfigurationError."""
    found = destination_of(settings)
    return found if found and found.langfuse else None
