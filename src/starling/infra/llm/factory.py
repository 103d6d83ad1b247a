"""Builds the models that the settings name, and closes their HTTP session."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Never
from urllib.request import getproxies

from starling.core.clock import Clock, SystemClock
from starling.core.errors import ConfigurationError, LLMServerError
from starling.core.llm import ModelReply, ModelRequest, ModelRole
from starling.core.settings.schema import Settings
from starling.infra import deferred
from starling.infra.llm.chat_model import ChatModel, ReplyStream
from starling.infra.llm.client import FallbackModelClient
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import (
    OFFLINE,
    Endpoint,
    ModelName,
    check_key,
    endpoints,
    named_models,
    names_by_role,
    parse_model_name,
    possible_names,
)
from starling.infra.llm.usage_estimate import EstimatedUsage

if TYPE_CHECKING:
    import aiohttp

_OFFLINE_PROVIDER = "offline"
_log = logging.getLogger(__name__)


def check_models(settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model in the settings. Makes no request."""
    known = endpoints(settings)
    for name in named_models(settings):
        _check(name, known, settings)


def check_model(name: str, settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model name. Makes no request."""
    _check(parse_model_name(name), endpoints(settings), settings)


@asynccontextmanager
async def open_models(settings: Settings, clock: Clock | None = None) -> AsyncGenerator[FallbackModelClient]:
    """Yield a client for the models of all roles. Raises ConfigurationError for an invalid model."""
    async with _opened_factory(settings) as factory:
        named = await names_by_role(settings)
        chains = {role: [factory.model(name) for name in names] for role, names in named.items()}
        await factory.import_adapters(name for names in named.values() for name in names)
        _log.debug("models: %s", ", ".join(f"{role} {chains[role][0].name}" for role in ModelRole))
        yield FallbackModelClient(chains, clock or SystemClock(), factory.resolve)


@dataclass(frozen=True, slots=True)
class ModelTrials:
    """Builds models to try their abilities. `names` has the first model of each role."""

    names: Mapping[ModelRole, str]
    _factory: "_ModelFactory"

    def build(self, name: str, lacks: Dialect = frozenset()) -> ChatModel:
        """Return a model that has learned nothing about its endpoint; its output is not read.

        Features in `lacks` are not tried. Raises ConfigurationError for an invalid name.
        """
        return self._factory.adapter(parse_model_name(name), lacks)


@asynccontextmanager
async def open_model_trials(settings: Settings) -> AsyncGenerator[ModelTrials]:
    """Yield what builds single models. Raises ConfigurationError for an invalid model in the settings."""
    async with _opened_factory(settings) as factory:
        named = await names_by_role(settings)
        await factory.import_adapters(name for names in named.values() for name in names)
        yield ModelTrials({role: str(names[0]) for role, names in named.items()}, factory)


@asynccontextmanager
async def _opened_factory(settings: Settings) -> "AsyncGenerator[_ModelFactory]":
    async with AsyncExitStack() as stack:
        yield _ModelFactory(settings, endpoints(settings), stack)


@dataclass(slots=True)
class _ModelFactory:
    """Builds each model once. `stack` closes the HTTP session."""

    settings: Settings
    endpoints: Mapping[str, Endpoint]
    stack: AsyncExitStack
    _built: dict[ModelName, ChatModel] = field(default_factory=dict[ModelName, ChatModel])
    _session: "aiohttp.ClientSession | None" = None

    async def import_adapters(self, names: Iterable[ModelName]) -> None:
        """Import what models of LangChain need in a thread: it takes seconds."""
        for name in names:
            endpoint = self.endpoints.get(name.provider)
            if endpoint is not None and endpoint.api == "responses":
                await asyncio.to_thread(deferred.responses_model)
            elif endpoint is None and name.provider != _OFFLINE_PROVIDER:
                await asyncio.to_thread(deferred.langchain_model)

    def model(self, name: ModelName) -> ChatModel:
        """Return the model, whose adapter is built when it is first asked. Raises ConfigurationError."""
        if name not in self._built:
            _check(name, self.endpoints, self.settings)
            self._built[name] = DeferredModel(str(name), lambda: self._read_adapter(name))
        return self._built[name]

    def resolve(self, text: str) -> ChatModel:
        """Return the model of a name; a model that is no longer configured refuses every request."""
        try:
            return self.model(parse_model_name(text))
        except ConfigurationError as error:
            return UnavailableModel(text, error.message, error.remedy)

    def _read_adapter(self, name: ModelName) -> ChatModel:
        adapter = self.adapter(name)
        if name.provider == _OFFLINE_PROVIDER:
            return adapter
        return deferred.output_reader().OutputReader(EstimatedUsage(adapter))

    def adapter(self, name: ModelName, lacks: Dialect = frozenset()) -> ChatModel:
        """Return a new adapter, which does not try the features in `lacks`. Raises ConfigurationError."""
        _check(name, self.endpoints, self.settings)
        if name.provider == _OFFLINE_PROVIDER:
            return deferred.offline_model().OfflineModel()
        if name.provider not in self.endpoints:
            opened = deferred.langchain_model().open_langchain_model
            return opened(name, possible_names(self.settings), lacks)
        endpoint = self.endpoints[name.provider]
        endpoint = replace(endpoint, lacks=endpoint.lacks | lacks)
        if endpoint.api == "responses":
            return deferred.responses_model().open_responses_model(name, endpoint)
        return deferred.openai_endpoint().EndpointModel(str(name), name.model, endpoint, self._http_session())

    def _http_session(self) -> "aiohttp.ClientSession":
        if self._session is None:
            # Looking up proxies for each request costs more than the request, so find out once whether there are any.
            self._session = deferred.openai_endpoint().open_session(trust_env=bool(getproxies()))
            self.stack.push_async_callback(self._session.close)
        return self._session


def _check(name: ModelName, known: Mapping[str, Endpoint], settings: Settings) -> None:
    """Raise ConfigurationError for an invalid model. A model of LangChain is built for that."""
    endpoint = known.get(name.provider)
    if name.provider == _OFFLINE_PROVIDER:
        if str(name) != OFFLINE:
            raise ConfigurationError(f"There is no model {name}.", f"Possible models: {possible_names(settings)}.")
    elif endpoint is None:
        deferred.langchain_model().open_langchain_model(name, possible_names(settings), frozenset())
    else:
        check_key(name, endpoint)


class DeferredModel:
    """A model whose adapter is imported and built by the first request: a start needs its name only."""

    def __init__(self, name: str, build: Callable[[], ChatModel]) -> None:
        self.name = name
        self._build = build
        self._model: ChatModel | None = None

    @property
    def lacking(self) -> Dialect:
        """Features that the endpoint has refused, or is set to lack; requests do without them."""
        return self._built().lacking

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        return await self._built().respond(request)

    def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply, within `request.timeout` seconds."""
        return self._built().stream_respond(request)

    def _built(self) -> ChatModel:
        if self._model is None:
            self._model = self._build()
        return self._model


@dataclass(frozen=True, slots=True)
class UnavailableModel:
    """A configured model that can't be used: refuses each request, so that the next model of its role is tried."""

    name: str
    reason: str
    remedy: str
    lacking: Dialect = frozenset()

    async def respond(self, request: ModelRequest) -> ModelReply:
        del request
        self._refuse()

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        yield await self.respond(request)

    def _refuse(self) -> Never:
        raise LLMServerError(self.name, self.reason, self.remedy, status=404)
