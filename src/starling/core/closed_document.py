"""The base of documents and events that nothing may be added to."""

from pydantic import BaseModel, ConfigDict


class ClosedDocument(BaseModel):
    """A frozen model that refuses unknown fields. Its validator is built when it is first needed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
