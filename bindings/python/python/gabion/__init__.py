"""Erasure codes, shard files, signatures and forecasts.

>>> import gabion
>>> rs = gabion.ReedSolomon(10, 4)
>>> data = [bytes([column]) * 64 for column in range(10)]
>>> redundancy = rs.encode(data)
>>> blocks = [*data, *redundancy]
>>> blocks[2] = blocks[11] = None
>>> sorted(rs.reconstruct(blocks))
[2, 11]

`gabion.shards` splits files into shard files, and joins, verifies and repairs them.
"""

from . import shards
from ._native import (
    Code,
    DataLoss,
    Error,
    Forecast,
    ReedSolomon,
    Signer,
    __version__,
    forecast,
)

__all__ = [
    "Code",
    "DataLoss",
    "Error",
    "Forecast",
    "ReedSolomon",
    "Signer",
    "__version__",
    "forecast",
    "shards",
]
