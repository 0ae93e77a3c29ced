"""Arrays as bytes: the .npy form, never a pickle."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The web process uses the wire too: it stays light without numpy.
    from numpy.typing import NDArray


def encode_array(array: NDArray[Any]) -> bytes:
    """An array as .npy bytes."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def decode_array(content: bytes) -> NDArray[Any]:
    """The array of .npy bytes; a pickle inside is refused."""
    import numpy as np

    return np.load(io.BytesIO(content), allow_pickle=False)
