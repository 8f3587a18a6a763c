"""Shard files: a file becomes k + m files, any k of which restore it.

>>> import pathlib, tempfile
>>> from gabion import shards
>>> with tempfile.TemporaryDirectory() as name:
...     place = pathlib.Path(name)
...     size = (place / "film").write_bytes(b"scenes" * 1000)
...     made = shards.split(place / "film", place / "shards", "4+2")
...     made.shards[1].unlink()
...     state = shards.verify(place / "shards")[0].health
...     rebuilt = [shard.index for shard in shards.repair(place / "shards")]
...     joined = shards.join(place / "shards", place / "copy")
...     state, rebuilt, (place / "copy").read_bytes() == b"scenes" * 1000
('recoverable', [1], True)

Functions with `progress` call it with the name of a pass, the bytes done and the bytes in all (`None` if that is not
known). An exception from it ends the work and is raised; so does Ctrl-C.
"""

from ._native import (
    Joined,
    RebuiltShard,
    SetState,
    ShardNote,
    ShardState,
    Split,
    join,
    repair,
    split,
    verify,
)

__all__ = [
    "Joined",
    "RebuiltShard",
    "SetState",
    "ShardNote",
    "ShardState",
    "Split",
    "join",
    "repair",
    "split",
    "verify",
]
