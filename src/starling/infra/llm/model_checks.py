"""Checks of the models that settings name, and the imports of LangChain for those that only it has."""

from collections.abc import Mapping
from typing import Final

from starling.core.errors import ConfigurationError
from starling.core.settings.schema import Settings
from starling.infra.llm.model_selection import (
    OFFLINE,
    Endpoint,
    ModelName,
    check_key,
    endpoints,
    named_models,
    parse_model_name,
    possible_names,
)

OFFLINE_PROVIDER: Final = "offline"


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


def langchain_model():
    """Return the module of LangChain's models. Imports LangChain, for seconds."""
    from starling.infra.llm import langchain_model

    return langchain_model


def responses_model():
    """Return the module of models behind the Responses API. Imports LangChain, for seconds."""
    from starling.infra.llm import responses_model

    return responses_model
