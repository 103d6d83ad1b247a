"""Trace destination in the settings."""

import os

import pytest

from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.infra.tracing.destination import Destination, destination_of

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk"}
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def going_to(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Destination | None:
    for name in [name for name in os.environ if name.startswith(("LANGFUSE_", "OTEL_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return destination_of(Settings())


def test_default_has_no_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    assert going_to(monkeypatch, {}) is None


def test_single_langfuse_key_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert going_to(monkeypatch, {"LANGFUSE_SECRET_KEY": "sk"}) is None


@pytest.mark.parametrize("variable", ["LANGFUSE_HOST", "LANGFUSE_BASE_URL"])
def test_langfuse_has_precedence_over_a_collector(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    found = going_to(monkeypatch, KEYS | COLLECTOR | {variable: "http://langfuse/"})

    assert found is not None
    assert found.traces == "http://langfuse/api/public/otel/v1/traces"
    assert found.langfuse == "http://langfuse"
    assert found.headers["authorization"] == "Basic cGs6c2s="


def test_collector_gets_the_configured_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = going_to(monkeypatch, COLLECTOR | {"OTEL_EXPORTER_OTLP_HEADERS": "Api-Key=a=b, x-team = stars"})

    assert found == Destination("http://collector:4318/v1/traces", {"api-key": "a=b", "x-team": "stars"})


def test_keys_are_not_in_the_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    found = going_to(monkeypatch, KEYS)

    assert "Basic" not in repr(found)


@pytest.mark.parametrize("address", ["localhost:4318", "http://", "http://[", "grpc://collector:4317"])
def test_invalid_trace_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
        going_to(monkeypatch, {"OTEL_EXPORTER_OTLP_ENDPOINT": address})
    with pytest.raises(ConfigurationError, match="LANGFUSE_HOST"):
        going_to(monkeypatch, KEYS | {"LANGFUSE_HOST": address})
