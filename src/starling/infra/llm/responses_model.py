"""Models behind OpenAI's Responses API, through LangChain. Imported only if one is configured: the import is slow."""

from typing import Any, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from starling.core.errors import LLMConnectionError, LLMInvalidResponse, LLMServerError, ModelError
from starling.core.json import as_object
from starling.core.llm import ModelReply, ResponseSchema
from starling.infra.llm.chat_model import Endpoint, ModelName
from starling.infra.llm.langchain_model import LangChainModel
from starling.infra.llm.request_forms import strict_form

_NO_KEY = "none"  # without one the package would take that of OPENAI_API_KEY
_FAULTS = {"rate_limit_exceeded": 429, "server_error": 500}  # of an answer that fails after its HTTP status was sent


def open_responses_model(name: ModelName, endpoint: Endpoint) -> "ResponsesModel":
    """Return the model behind `/responses` of an endpoint."""

    def build(temperature: float | None, max_tokens: int | None) -> BaseChatModel:
        return ChatOpenAI(
            model=name.model,
            base_url=endpoint.base_url,
            api_key=SecretStr(endpoint.api_key or _NO_KEY),
            use_responses_api=True,
            store=False,  # the endpoint keeps nothing; each request has the whole conversation
            temperature=temperature,
            max_completion_tokens=max_tokens,
            max_retries=0,
        )

    return ResponsesModel(str(name), build, endpoint.lacks)


class ResponsesModel(LangChainModel):
    """One model behind the Responses API."""

    def _with_structured_output(self, model: BaseChatModel, response: ResponseSchema) -> Any:
        strict = strict_form(response.schema)
        schema = {"description": "The answer.", **(strict or response.schema), "title": response.name}
        return cast("Any", model).with_structured_output(
            schema, method="json_schema", include_raw=True, strict=strict is not None
        )

    def _reply(self, answer: AIMessage) -> ModelReply:
        if isinstance(answer, AIMessageChunk) and "status" not in as_object(answer.response_metadata):
            raise LLMConnectionError(self.name, "the stream ended before the answer was complete.")
        return super()._reply(answer)

    def _failure(self, error: Exception) -> ModelError:
        failure = super()._failure(error)
        status = next((status for code, status in _FAULTS.items() if code in failure.reason), None)
        if isinstance(failure, LLMInvalidResponse) and status is not None:
            return LLMServerError(self.name, failure.reason, status=status)
        return failure
