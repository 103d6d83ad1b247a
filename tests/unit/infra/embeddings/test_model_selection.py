"""Embedders of the setting `embeddings`, and what is refused before anything starts."""

import subprocess
import sys

import pytest

from starling.app.container.configuration import check_configuration
from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.infra.embeddings.factory import build_embedder
from starling.infra.embeddings.model_selection import check_embeddings

LOCAL = {"base_url": "http://127.0.0.1:1/v1"}


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "STARLING_EMBEDDINGS"):
        monkeypatch.delenv(name, raising=False)


def settings(embeddings: str, **values: object) -> Settings:
    return Settings.model_validate({"embeddings": embeddings, "providers": {"local": LOCAL}, **values})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("off", None),
        ("static", "static"),
        ("ollama:nomic-embed-text", "ollama:nomic-embed-text"),
        ("local:org/model:v1", "local:org/model:v1"),
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small"),
    ],
)
def test_setting_names_the_embedder(given: str, name: str | None) -> None:
    configured = settings(given, openai_api_key="key")

    check_embeddings(configured)
    embedder = build_embedder(configured)

    assert (embedder and embedder.name) == name


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("wordllama", r"STARLING_EMBEDDINGS is 'wordllama'.* Write for example static, openai:"),
        ("local:", "STARLING_EMBEDDINGS is 'local:'"),
        ("openai:text-embedding-3-small", "needs an API key. Set OPENAI_API_KEY"),
        ("nonsense:model", "nonsense:model can't be set up: Provider 'nonsense' is not supported"),
        ("cohere:embed", "pip install langchain-cohere"),
    ],
)
def test_unusable_model_is_refused_before_anything_starts(given: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        check_configuration(settings(given, model="offline:rules"))


def test_check_imports_neither_numpy_nor_langchain() -> None:
    program = (
        "import sys; from starling.core.settings.schema import Settings;"
        "from starling.infra.embeddings.model_selection import check_embeddings;"
        "check_embeddings(Settings(embeddings='ollama:nomic-embed-text'));"
        "print({'numpy', 'langchain', 'tokenizers', 'safetensors'} & sys.modules.keys())"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout == "set()\n"
