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
from starling.infra.llm.catalogue import OFFLINE, ModelName, check_key, endpoints, names_by_role, possible_names
from starling.infra.llm.chat_model import ChatModel
from starling.infra.llm.client import Models
from starling.infra.llm.endpoint import Endpoint, EndpointModel, open_session
from starling.infra.llm.offline import OfflineRules
from starling.infra.llm.offline_model import OfflineModel

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_models(settings: Settings, clock: Clock | None = None) -> AsyncGenerator[Models]:
    """Give the models of all roles. Raises ConfigurationError for a model that there can't be."""
    # Looking for a proxy at each request costs more than the request: ask once whether there is any.
    async with open_session(trust_env=bool(getproxies())) as session:
        builder = _Builder(settings, endpoints(settings), session)
        named = await names_by_role(settings, session)
        chains = {role: [builder.model(name) for name in names] for role, names in named.items()}
        _log.info("Models: %s.", ", ".join(f"{role} {chains[role][0].name}" for role in ModelRole))
        yield Models(chains, clock or SystemClock())


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

    def _build(self, name: ModelName) -> ChatModel:
        if name.provider == "offline":
            return self._offline(name)
        endpoint = self.endpoints.get(name.provider)
        if endpoint is None:
            return _langchain_opener()(name, possible_names(self.settings))
        check_key(name, endpoint)
        return EndpointModel(str(name), name.model, endpoint, self.session)

    def _offline(self, name: ModelName) -> ChatModel:
        if str(name) != OFFLINE:
            raise ConfigurationError(f"There is no model {name}.", f"Possible are {possible_names(self.settings)}.")
        return OfflineModel(OfflineRules())


def _langchain_opener() -> Callable[[ModelName, str], ChatModel]:
    from starling.infra.llm.langchain_model import open_langchain_model  # noqa: PLC0415 - langchain is heavy

    return open_langchain_model
