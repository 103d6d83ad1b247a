"""The wording of a prompt, as several routes answer with it."""

from dataclasses import asdict
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict

from starling.core.llm import PromptVersion

WORDING: Final[dict[str, Any]] = {
    "name": "supervisor",
    "hash": "0b7de8c1a9f2436557e0d1b2c3a4f5968778695a4b3c2d1e0f9e8d7c6b5a4938",
    "source": "langfuse",
    "version": 4,
    "label": "production",
    "remote_name": "agent_orchestrator",
}


class Wording(BaseModel):
    """A text of a prompt by its hash.

    One from Langfuse has the version and the label that it was found by, under its `remote_name` there.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [WORDING]})

    name: str
    hash: str
    source: Literal["langfuse", "local"]
    version: int | None
    label: str | None
    remote_name: str = ""

    @classmethod
    def of(cls, found: PromptVersion) -> Self:
        """Return the response body of a wording."""
        return cls.model_validate(asdict(found))
