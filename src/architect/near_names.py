"""Names that the author of a spec may have meant."""

from collections.abc import Iterable

from starling.core.model_output.names import near_matches


def did_you_mean(written: str, names: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """Return a remedy that names, after `prefix`, those of `names` that are like `written`, else `otherwise`."""
    near = [repr(f"{prefix}{name}") for name in near_matches(written, names)]
    return f"Did you mean {' or '.join(near)}?" if near else otherwise
