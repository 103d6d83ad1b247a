"""Whether texts get vectors, and how fast."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from starling.app.doctor.finding import Finding, ok
from starling.core.embeddings import Embedder
from starling.core.errors import ModelError
from starling.core.settings import Settings
from starling.infra import deferred

_SUBJECT = "embeddings"
_SLOW_SECONDS = 0.5
_FALLBACK = "Without vectors, agents are found by words only."


async def check(settings: Settings) -> Sequence[Finding]:
    """Embed two texts: the first loads the model, the second is timed. Raises ConfigurationError."""
    embedder = await asyncio.to_thread(_build, settings)
    if embedder is None:
        return [ok(_SUBJECT, "They are off: agents are found by words only.")]
    try:
        await embedder.embed(["warm up"])
        begun = perf_counter()
        await embedder.embed(["What time is it in Lima?"])
    except ModelError as error:
        remedy = error.remedy or "Check STARLING_EMBEDDINGS and the endpoint."
        return [Finding(_SUBJECT, "warning", f"{error.message} {_FALLBACK}", remedy)]
    finally:
        await embedder.close()
    seconds = perf_counter() - begun
    said = f"{embedder.name} made a vector of {embedder.dimensions} numbers in {seconds * 1000:.0f} ms."
    if seconds > _SLOW_SECONDS:
        return [Finding(_SUBJECT, "warning", f"{said} Each search waits for one.", "Use a nearer model, or `static`.")]
    return [ok(_SUBJECT, said)]


def _build(settings: Settings) -> Embedder | None:
    return deferred.embedder_factory().build_embedder(settings)
