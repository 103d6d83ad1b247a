"""Whether texts get vectors, how fast, and what works without them."""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from starling.core.diagnostics import Diagnostic, ok, warning
from starling.core.embeddings import Embedder
from starling.core.errors import ConfigurationError, ModelError
from starling.core.settings.schema import Settings
from starling.infra.embeddings.factory import build_embedder

_SUBJECT: Final = "embeddings"
_SLOW_SECONDS: Final = 0.5
_LIMIT_SECONDS: Final = 10.0  # as long as a search waits for the vector of its text
_FALLBACK: Final = "Runs go on: without vectors, agents are found by words only."
_CHECK: Final = "Check STARLING_EMBEDDINGS and the endpoint."


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Embed two texts: the first loads the model, the second is timed. Raises ConfigurationError."""
    embedder = await asyncio.to_thread(build_embedder, settings)
    if embedder is None:
        return [ok(_SUBJECT, "They are off: agents are found by words only.")]
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            await embedder.embed(["warm up"])
            begun = perf_counter()
            await embedder.embed(["What time is it in Lima?"])
        return [speed(embedder, perf_counter() - begun)]
    except TimeoutError:
        said = f"{embedder.name} made no vector within {_LIMIT_SECONDS:g} s. {_FALLBACK}"
        return [warning(_SUBJECT, said, _CHECK)]
    except (ModelError, ConfigurationError) as error:
        return [warning(_SUBJECT, f"{error.message} {_FALLBACK}", error.remedy or _CHECK)]
    finally:
        await embedder.close()


def speed(embedder: Embedder, seconds: float) -> Diagnostic:
    """Return the finding for an embedder that took so long for one text."""
    said = f"{embedder.name} made a vector of {embedder.dimensions} numbers in {seconds * 1000:.0f} ms."
    if seconds <= _SLOW_SECONDS:
        return ok(_SUBJECT, said)
    slow = f"{said} That is slow: agents are found, but each search waits for one."
    return warning(_SUBJECT, slow, "Use a nearer or smaller model, or `static`.")
