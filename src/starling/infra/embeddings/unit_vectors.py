"""Numbers of any provider as vectors of length 1."""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from starling.core.embeddings import Vector


def unit_vector(numbers: Sequence[float] | NDArray[np.float32]) -> Vector:
    """Return the vector of length 1 in the same direction, or all zeros. Raises ValueError for NaN and infinity."""
    values = np.asarray(numbers, dtype=np.float32)
    length = float(np.linalg.norm(values))
    if not np.isfinite(length):
        raise ValueError("a vector has a number that is not finite")
    return array("f", (values / length if length else values).astype(np.float32).tobytes())
