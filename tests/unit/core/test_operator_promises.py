"""What operators are promised of the environment: an empty variable is none, whichever it is."""

import re
from pathlib import Path

import pytest

from starling.core.settings.client import read_client_settings
from starling.core.settings.loading import load_settings

PAGE = Path(__file__).parents[3] / "docs/reference/settings.md"
ROWS = re.findall(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| `\w+` \|", PAGE.read_text(), re.MULTILINE)
VARIABLES = [name for row in ROWS for name in re.findall(r"\w+", row)]


def test_every_documented_variable_counts_as_unset_if_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    file = {"limits": {"run_seconds": 9}, "providers": {"own": {"base_url": "http://own"}}, "model": "own:a", "port": 7}
    expected, client = load_settings(file, "my.yaml"), read_client_settings(file)

    for name in VARIABLES:
        monkeypatch.setenv(name, "")

    assert len(VARIABLES) > 40
    assert load_settings(file, "my.yaml").model_dump() == expected.model_dump()
    assert read_client_settings(file) == client


@pytest.mark.parametrize(
    ("empty", "other", "member"),
    [
        ("OLLAMA_BASE_URL", "OLLAMA_HOST", "ollama_base_url"),
        ("LANGFUSE_HOST", "LANGFUSE_BASE_URL", "langfuse_host"),
    ],
)
def test_second_name_of_a_variable_counts_where_the_first_is_empty(
    monkeypatch: pytest.MonkeyPatch, empty: str, other: str, member: str
) -> None:
    monkeypatch.setenv(empty, "")
    monkeypatch.setenv(other, "http://there:1234")

    assert "there:1234" in str(getattr(load_settings({}, "my.yaml"), member))


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("gpu", "http://gpu:11434"),
        (":8080", "http://localhost:8080"),
        ("gpu/", "http://gpu:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("https://gpu/ollama", "https://gpu/ollama"),
        ("http://gpu:8080/", "http://gpu:8080/"),
    ],
)
def test_address_of_ollama_is_completed_as_ollama_does(
    monkeypatch: pytest.MonkeyPatch, given: str, address: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", given)

    assert load_settings({}, "my.yaml").ollama_base_url == address
