"""Builds the models that the settings name, once, and closes what they hold."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.request import getproxies

import aiohttp

from starling.core.clock import Clock, SystemClock
from starling.core.errors import ConfigurationError
from starling.core.llm import ModelRole
from starling.core.settings import Settings
from starling.infra.llm.chat_model import ChatModel
from starling.infra.llm.client import Models
from starling.infra.llm.model_selection import (
    OFFLINE,
    ModelName,
    check_key,
    endpoints,
    named_models,
    names_by_role,
    parse_model_name,
    possible_names,
)
from starling.infra.llm.offline import OfflineRules
from starling.infra.llm.offline_model import OfflineModel
from starling.infra.llm.openai_endpoint import Endpoint, EndpointModel, open_session
from starling.infra.llm.unavailable_model import AbsentModel

_OFFLINE_PROVIDER = "offline"
_log = logging.getLogger(__name__)


def check_models(settings: Settings) -> None:
    """Raise ConfigurationError for a named model that there can't be. Asks nobody."""
    known = endpoints(settings)
    for name in named_models(settings):
        _check(name, known, settings)


def check_model(name: str, settings: Settings) -> None:
    """Raise ConfigurationError where there can't be a model of this name. Asks nobody."""
    _check(parse_model_name(name), endpoints(settings), settings)


@asynccontextmanager
async def open_models(settings: Settings, clock: Clock | None = None) -> AsyncGenerator[Models]:
    """Give the models of all roles. Raises ConfigurationError for a model that there can't be."""
    # Looking for a proxy at each request costs more than the request: ask once whether there is any.
    async with open_session(trust_env=bool(getproxies())) as session:
        builder = _Builder(settings, endpoints(settings), session)
        named = await names_by_role(settings, session)
        chains = {role: [builder.model(name) for name in names] for role, names in named.items()}
        _log.debug("models: %s", ", ".join(f"{role} {chains[role][0].name}" for role in ModelRole))
        yield Models(chains, clock or SystemClock(), builder.named)


@dataclass(slots=True)
class _Builder:
    """Makes each named model once."""

    settings: Settings
    endpoints: Mapping[str, Endpoint]
    session: aiohttp.ClientSession
    _built: dict[ModelName, ChatModel] = field(default_factory=dict[ModelName, ChatModel])

    def model(self, name: ModelName) -> ChatModel:
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def named(self, text: str) -> ChatModel:
        """Return the model of a name, or one that refuses where the settings don't know of it any more."""
        try:
            return self.model(parse_model_name(text))
        except ConfigurationError as error:
            return AbsentModel(text, error.message, error.remedy)

    def _build(self, name: ModelName) -> ChatModel:
        other = _check(name, self.endpoints, self.settings)
        if other is not None:
            return other
        if name.provider == _OFFLINE_PROVIDER:
            return OfflineModel(OfflineRules())
        return EndpointModel(str(name), name.model, self.endpoints[name.provider], self.session)


def _check(name: ModelName, known: Mapping[str, Endpoint], settings: Settings) -> ChatModel | None:
    """Raise ConfigurationError where there is no such model; return those of LangChain, known only by being made."""
    if name.provider == _OFFLINE_PROVIDER:
        if str(name) != OFFLINE:
            raise ConfigurationError(f"There is no model {name}.", f"Possible are {possible_names(settings)}.")
        return None
    endpoint = known.get(name.provider)
    if endpoint is None:
        return _langchain_opener()(name, possible_names(settings))
    check_key(name, endpoint)
    return None


def _langchain_opener() -> Callable[[ModelName, str], ChatModel]:
    from starling.infra.llm.langchain_model import open_langchain_model  # noqa: PLC0415 - langchain is heavy

    return open_langchain_model
