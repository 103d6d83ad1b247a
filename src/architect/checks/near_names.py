"""Names that the author of a spec may have meant."""

from collections.abc import Iterable

from starling.core.model_output.names import near_matches


def did_you_mean(written: str, names: Iterable[str], otherwise: str) -> str:
    """Return a remedy that names those of `names` that are like `written`, else the remedy `otherwise`."""
    near = near_matches(written, names)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else otherwise
