"""Precedence of settings, and error texts for wrong ones."""

from typing import Any

import pytest

from starling.core.errors import ConfigurationError
from starling.core.prompts import PROMPT_NAMES
from starling.core.settings.client import EMBEDDED, read_client_settings
from starling.core.settings.loading import load_settings


def error_of(file_values: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file_values, "my.yaml", **options)
    return caught.value.message


def test_options_override_the_environment_which_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_HOST", "::1")
    monkeypatch.setenv("STARLING_LIMITS", '{"run_seconds": 5}')

    settings = load_settings(
        {"port": 1, "host": "localhost", "model": "a:b, c:d", "limits": {"run_seconds": 9, "max_attempts": 4}},
        "my.yaml",
        port=2,
    )

    assert (settings.port, settings.host, settings.model) == (2, "::1", ("a:b", "c:d"))
    assert (settings.limits.run_seconds, settings.limits.max_attempts) == (5, 4)


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PORT", "STARLING_WORKER_PORT", "STARLING_LIMITS", "STARLING_PROVIDERS", "DATABASE_URL", "LANGFUSE_HOST")
    for name in (*names, "STARLING_GOVERNANCE", "STARLING_REQUIRE_KEYS", "STARLING_MODEL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "")

    settings = load_settings({"port": 1, "database_url": "postgresql://db/a", "model": "a:b"}, "my.yaml")
    client = read_client_settings({"port": 1, "database_url": "postgresql://db/a"})

    assert (settings.port, settings.worker_port, settings.model) == (1, None, ("a:b",))
    assert settings.database_url is not None
    assert client is not None
    assert (client.default_url, client.database == EMBEDDED) == ("http://127.0.0.1:1", False)


def test_variables_of_other_programs_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "x86_64-conda-linux-gnu")
    monkeypatch.setenv("MODEL", "T480")

    settings = load_settings({}, "my.yaml")

    assert (settings.host, settings.model) == ("127.0.0.1", ())


@pytest.mark.parametrize(
    ("file_values", "expected"),
    [
        (
            {"limits": {"run_second": 1}},
            "limits.run_second in my.yaml: there is no such setting (did you mean run_seconds?)",
        ),
        ({"aproval": "unsafe"}, "aproval in my.yaml: there is no such setting (did you mean approval?)."),
        ({"bogus": 1}, "bogus in my.yaml: there is no such setting."),
        ({"port": "many"}, "port in my.yaml: must be a whole number"),
        ({"providers": {"mine": {}}}, "providers.mine.base_url in my.yaml: is missing"),
        ({"log_level": "loud"}, "log_level in my.yaml: must be 'DEBUG'"),
        ({"approval": "sometimes"}, "approval in my.yaml: "),
    ],
)
def test_wrong_value_in_the_file_is_reported_with_the_file_name(file_values: dict[str, Any], expected: str) -> None:
    assert expected in error_of(file_values)


def test_wrong_value_in_the_environment_is_reported_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_LIMITS", '{"run_seconds": -1}')
    monkeypatch.setenv("PORT", "many")

    wrong = error_of({"limits": {"max_attempts": 0}, "port": 8000})

    assert "STARLING_LIMITS.run_seconds: must be greater" in wrong
    assert "limits.max_attempts in my.yaml: must be greater" in wrong
    assert "PORT: must be a whole number" in wrong


def test_variable_that_is_not_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_LIMITS", "nonsense")

    assert error_of({}).startswith("STARLING_LIMITS in the environment is not JSON: Expecting value")


def test_wrong_option_is_reported_as_an_option() -> None:
    assert "--port: must be less" in error_of({"port": 8000}, port=99_999)


def test_names_of_prompts_in_langfuse_have_defaults_and_each_can_be_set() -> None:
    names = load_settings({"prompt_names": {"qa": "answers/final"}}, "my.yaml").langfuse_names

    assert (names["supervisor"], names["qa"], names["judge"]) == ("agent_orchestrator", "answers/final", "agent_judge")
    assert set(names) == set(PROMPT_NAMES)


@pytest.mark.parametrize(
    ("names", "told"), [({"poet": "x"}, "no prompt has the name poet"), ({"qa": ""}, "must not be empty")]
)
def test_names_of_no_prompt_and_empty_ones_are_refused(names: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load_settings({"prompt_names": names}, "my.yaml")
