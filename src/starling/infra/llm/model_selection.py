"""Model names, endpoints, the default model of each role, and checks of the models that settings name."""

import asyncio
import logging
from collections.abc import Mapping
from http.client import HTTPException
from importlib.util import find_spec
from typing import Final
from urllib.request import urlopen

from pydantic import SecretStr
from yarl import URL

from starling.core.errors import ConfigurationError
from starling.core.json import as_items, as_object, as_text
from starling.core.llm import ModelRole
from starling.core.model_output.json_document import loads_object
from starling.core.settings.schema import Settings
from starling.core.validation_errors import http_address
from starling.infra.llm.chat_model import Endpoint, ModelName
from starling.infra.llm.endpoint_capabilities import NAMED_FEATURES, Feature

OFFLINE = "offline:rules"
OFFLINE_PROVIDER: Final = "offline"
_DEFAULT_OPENAI = "openai:gpt-4.1-mini"
_DEFAULT_OLLAMA_MODEL = "llama3.2:3b"
_OPENAI_HOST = "api.openai.com"
_PROBE_SECONDS = 3.0  # slow while the machine starts
_CONNECT_SECONDS = 1.0

_log = logging.getLogger(__name__)


def parse_model_name(text: str) -> ModelName:
    """Parse `provider:model` or `provider/model`. Raises ConfigurationError."""
    cuts = [position for position in (text.find(":"), text.find("/")) if position >= 0]
    cut = min(cuts, default=-1)
    provider, model = text[:cut].strip().lower(), text[cut + 1 :].strip()
    if cut < 0 or not provider or not model:
        raise ConfigurationError(
            f"The model name {text!r} is not of the form provider:model.",
            f"Write for example {_DEFAULT_OPENAI}, ollama:{_DEFAULT_OLLAMA_MODEL} or {OFFLINE}.",
        )
    return ModelName(provider, model)


def possible_names(settings: Settings) -> str:
    """Return the possible forms of a model name, for messages."""
    own = "".join(f"{provider}:<model>, " for provider in endpoints(settings))
    return f"{OFFLINE}, {own}or a provider of LangChain's init_chat_model whose package is installed"


def endpoints(settings: Settings) -> Mapping[str, Endpoint]:
    """Return the OpenAI-compatible endpoints by provider. Raises ConfigurationError for an invalid URL."""
    ollama = settings.ollama_base_url.rstrip("/").removesuffix("/v1")
    known = {
        "openai": Endpoint(
            _address("OPENAI_BASE_URL", settings.openai_base_url), _key("OPENAI_API_KEY", settings.openai_api_key)
        ),
        "ollama": Endpoint(_address("OLLAMA_BASE_URL", f"{ollama}/v1")),
    }
    for name, provider in settings.providers.items():
        key = _key(f"providers.{name}.api_key", provider.api_key)
        url = _address(f"providers.{name}.base_url", provider.base_url)
        lacks = frozenset[Feature]().union(*(NAMED_FEATURES[feature] for feature in provider.lacks))
        known[name.lower()] = Endpoint(url, key, provider.api, lacks)
    return known


def check_key(name: ModelName, endpoint: Endpoint) -> None:
    """Raise ConfigurationError if OpenAI itself is configured without a key."""
    if URL(endpoint.base_url).host == _OPENAI_HOST and not endpoint.api_key:
        raise ConfigurationError(f"The model {name} needs an API key.", "Set OPENAI_API_KEY.")


async def names_by_role(settings: Settings) -> dict[ModelRole, tuple[ModelName, ...]]:
    """Return the model and fallbacks of each role: its own setting, else `model`, else the default."""
    chosen = _chosen(settings)
    default = () if all(chosen.values()) else (await _default(settings),)
    return {role: tuple(parse_model_name(name) for name in names or default) for role, names in chosen.items()}


def supervisor_names(settings: Settings) -> tuple[ModelName, ...]:
    """Return the model and fallbacks that are set for supervisors; none where they are those of `reasoning`."""
    return tuple(parse_model_name(name) for name in settings.model_supervisor)


def named_models(settings: Settings) -> frozenset[ModelName]:
    """Return all models in the settings. Raises ConfigurationError for an invalid name."""
    named = (parse_model_name(name) for names in _chosen(settings).values() for name in names)
    return frozenset((*named, *supervisor_names(settings)))


async def configured_models(settings: Settings) -> frozenset[ModelName]:
    """Return all models in the settings, and the default where a role has none there."""
    return named_models(settings).union(*(await names_by_role(settings)).values())


def _chosen(settings: Settings) -> dict[ModelRole, tuple[str, ...]]:
    return {
        ModelRole.ROUTER: settings.model_router or settings.model,
        ModelRole.REASONING: settings.model_reasoning or settings.model,
        ModelRole.CODING: settings.model_coding or settings.model,
    }


async def _default(settings: Settings) -> str:
    if _key("OPENAI_API_KEY", settings.openai_api_key):
        return _DEFAULT_OPENAI
    pulled = await pulled_models(settings.ollama_base_url)
    if pulled is None:
        return OFFLINE
    if _DEFAULT_OLLAMA_MODEL in pulled:
        return f"ollama:{_DEFAULT_OLLAMA_MODEL}"
    _log.warning(
        "Ollama at %s does not have %s. `ollama pull %s` makes it the default model. Until then the model is %s.",
        settings.ollama_base_url, _DEFAULT_OLLAMA_MODEL, _DEFAULT_OLLAMA_MODEL, OFFLINE,
    )  # fmt: skip
    return OFFLINE


async def pulled_models(base_url: str) -> frozenset[str] | None:
    """Return the names of the models in an Ollama, or None if it does not answer."""
    url = f"{base_url.rstrip('/').removesuffix('/v1')}/api/tags"
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            body = loads_object(await asyncio.to_thread(_fetch, url))
    except (HTTPException, TimeoutError, OSError):
        return None
    if body is None:
        return None
    return frozenset(as_text(as_object(model).get("name")) for model in as_items(body.get("models")))


def _fetch(url: str) -> bytes:
    """Return what an address answers, by the standard library: a start has no other use for aiohttp."""
    with urlopen(url, timeout=_CONNECT_SECONDS) as response:  # noqa: S310 - `endpoints` admits http and https only
        return response.read()


def _address(setting: str, url: str) -> str:
    return http_address(setting, url, "http://localhost:11434/v1")


def _key(setting: str, secret: SecretStr | None) -> str:
    key = secret.get_secret_value().strip() if secret is not None else ""
    if not (key.isascii() and key.isprintable()):  # it must fit into an HTTP header
        raise ConfigurationError(
            f"{setting} contains characters that are not allowed in an API key.", "Copy the key again."
        )
    return key


def check_models(settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model in the settings. Makes no request."""
    known = endpoints(settings)
    for name in named_models(settings):
        check(name, known, settings)


def check_model(name: str, settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model name. Makes no request."""
    check(parse_model_name(name), endpoints(settings), settings)


def check(name: ModelName, known: Mapping[str, Endpoint], settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model. A model of LangChain is built for that."""
    endpoint = known.get(name.provider)
    if name.provider == OFFLINE_PROVIDER:
        if str(name) != OFFLINE:
            raise ConfigurationError(f"There is no model {name}.", f"Possible models: {possible_names(settings)}.")
    elif endpoint is None:
        langchain_model().open_langchain_model(name, possible_names(settings), frozenset())
    else:
        check_key(name, endpoint)
        if endpoint.api == "responses" and find_spec("langchain_openai") is None:
            raise ConfigurationError(
                f"The model {name} needs the package langchain-openai, which isn't installed.",
                "Install it with `pip install 'starling-swarm[responses]'`, or set `api` to chat_completions.",
            )


def langchain_model():
    """Return the module of LangChain's models. Imports LangChain, for seconds."""
    from starling.infra.llm import langchain_model

    return langchain_model


def responses_model():
    """Return the module of models behind the Responses API. Imports LangChain, for seconds."""
    from starling.infra.llm import responses_model

    return responses_model
