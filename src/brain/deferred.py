"""LangGraph's interrupt, imported when it is first used: a platform is ready before it needs LangGraph."""


def interrupt(value: object) -> None:
    """Interrupt the node that calls it; LangGraph lets other nodes run on."""
    from langgraph.types import interrupt  # noqa: PLC0415 - deferred

    interrupt(value)
