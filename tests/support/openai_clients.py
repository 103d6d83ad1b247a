"""OpenAI's clients of an API that a test serves; they repeat nothing unless they are told to."""

from openai import AsyncOpenAI, OpenAI

from tests.support.local_access import TOKEN


def openai_client(url: str, key: str = TOKEN, *, max_retries: int = 0) -> AsyncOpenAI:
    """Return an asynchronous client."""
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=max_retries)


def blocking_openai_client(url: str, key: str = TOKEN, *, max_retries: int = 0) -> OpenAI:
    """Return a synchronous client."""
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=max_retries)
