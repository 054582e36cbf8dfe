"""Top-k messages: the k values of largest size and their places; what they weigh and how long selecting takes.

Source: Shi et al., gTop-k S-SGD, ICDCS'19 (arXiv 1901.04359), for the selection: s x log2(x) seconds of x values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: bytes of a value's place
INDEX_BYTES = 4


def sparse_bytes(elements: npt.ArrayLike, share: npt.ArrayLike, element_bytes: int) -> Floats:
    """Return the bytes of the largest `share` of some elements, values and places; shapes broadcast.

    >>> float(sparse_bytes(1000, 0.01, 4))
    80.0
    """
    found: Floats = np.ceil(np.asarray(share) * np.asarray(elements, dtype=np.float64)) * (element_bytes + INDEX_BYTES)
    return found


def selection_seconds(per_value: float, elements: npt.ArrayLike) -> Floats:
    """Return the seconds of selecting from some elements, `per_value` x elements x log2(elements); any shape.

    >>> float(selection_seconds(1e-9, 1024))
    1.024e-05
    """
    count = np.maximum(np.asarray(elements, dtype=np.float64), 1.0)
    found: Floats = per_value * count * np.log2(count)
    return found
