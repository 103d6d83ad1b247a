"""Builds the models that the settings name, and closes their HTTP session."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.request import getproxies

import aiohttp

from starling.core.clock import Clock, SystemClock
from starling.core.errors import ConfigurationError, LLMServerError
from starling.core.llm import ModelReply, ModelRequest, ModelRole
from starling.core.settings.schema import Settings
from starling.infra.llm.chat_model import ChatModel, Endpoint, ModelAdapter, ModelName, ReplyStream
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import (
    OFFLINE_PROVIDER,
    check,
    endpoints,
    langchain_model,
    names_by_role,
    parse_model_name,
    possible_names,
    responses_model,
    supervisor_names,
)
from starling.infra.llm.offline_model import OfflineModel
from starling.infra.llm.openai_endpoint import EndpointModel, open_session
from starling.infra.llm.output_reader import OutputReader

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_models(settings: Settings, clock: Clock | None = None) -> AsyncGenerator[FallbackModelClient]:
    """Yield a client for the models of all roles. Raises ConfigurationError for an invalid model."""
    async with open_model_factory(settings) as factory:
        chains = {role: [factory.model(name) for name in names] for role, names in factory.named.items()}
        _log.debug("models: %s", ", ".join(f"{role} {chains[role][0].name}" for role in ModelRole))
        supervisor = [factory.model(name) for name in supervisor_names(settings)]
        yield FallbackModelClient(chains, clock or SystemClock(), factory.resolve, supervisor=supervisor)


@asynccontextmanager
async def open_model_factory(settings: Settings) -> AsyncGenerator["ModelFactory"]:
    """Yield what builds single models. Raises ConfigurationError for an invalid model in the settings."""
    async with AsyncExitStack() as stack:
        factory = ModelFactory(settings, endpoints(settings), stack, await names_by_role(settings))
        await factory.import_adapters()
        yield factory


@dataclass(slots=True)
class ModelFactory:
    """Builds models, each once. `stack` closes the HTTP session; `named` are those that the settings name."""

    settings: Settings
    endpoints: Mapping[str, Endpoint]
    stack: AsyncExitStack
    named: Mapping[ModelRole, tuple[ModelName, ...]]
    _built: dict[ModelName, ChatModel] = field(default_factory=dict[ModelName, ChatModel])
    _session: aiohttp.ClientSession | None = None

    async def import_adapters(self) -> None:
        """Import what models of LangChain need in a thread: it takes seconds."""
        for name in {*supervisor_names(self.settings), *(name for names in self.named.values() for name in names)}:
            endpoint = self.endpoints.get(name.provider)
            if endpoint is not None and endpoint.api == "responses":
                await asyncio.to_thread(responses_model)
            elif endpoint is None and name.provider != OFFLINE_PROVIDER:
                await asyncio.to_thread(langchain_model)

    def model(self, name: ModelName) -> ChatModel:
        """Return the model. Raises ConfigurationError."""
        if name not in self._built:
            adapter = self.adapter(name)
            is_offline = name.provider == OFFLINE_PROVIDER
            self._built[name] = adapter if is_offline else OutputReader(adapter)
        return self._built[name]

    def resolve(self, text: str) -> ChatModel:
        """Return the model of a name; a model that is no longer configured refuses every request."""
        try:
            return self.model(parse_model_name(text))
        except ConfigurationError as error:
            return UnavailableModel(text, error.message, error.remedy)

    def adapter(self, name: ModelName, lacks: Dialect = frozenset()) -> ModelAdapter:
        """Return a new adapter, which has learned nothing about its endpoint and whose output is not read.

        It does not try the features in `lacks`. Raises ConfigurationError.
        """
        check(name, self.endpoints, self.settings)
        if name.provider == OFFLINE_PROVIDER:
            return OfflineModel()
        if name.provider not in self.endpoints:
            return langchain_model().open_langchain_model(name, possible_names(self.settings), lacks)
        endpoint = self.endpoints[name.provider]
        endpoint = replace(endpoint, lacks=endpoint.lacks | lacks)
        if endpoint.api == "responses":
            return responses_model().open_responses_model(name, endpoint)
        if self._session is None:
            # Looking up proxies for each request costs more than the request, so find out once whether there are any.
            self._session = open_session(trust_env=bool(getproxies()))
            self.stack.push_async_callback(self._session.close)
        return EndpointModel(str(name), name.model, endpoint, self._session)


@dataclass(frozen=True, slots=True)
class UnavailableModel:
    """A configured model that can't be used: refuses each request, so that the next model of its role is tried."""

    name: str
    reason: str
    remedy: str

    async def respond(self, request: ModelRequest) -> ModelReply:
        del request
        raise LLMServerError(self.name, self.reason, self.remedy, status=404)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        yield await self.respond(request)
