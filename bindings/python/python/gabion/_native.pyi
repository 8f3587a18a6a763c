"""Types of the compiled part; `gabion` and `gabion.shards` have the public names."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final, overload

from typing_extensions import Buffer, TypeVar

__all__ = [
    "Code",
    "DataLoss",
    "Error",
    "Forecast",
    "Joined",
    "RebuiltShard",
    "ReedSolomon",
    "SetState",
    "ShardNote",
    "ShardState",
    "Signer",
    "Split",
    "__version__",
    "forecast",
    "join",
    "repair",
    "split",
    "verify",
]

__version__: str

_Path = str | PathLike[str]
# The name of a pass, the bytes done, the bytes in all.
_Progress = Callable[[str, int, int | None], object]
# Several blocks: a sequence, or a buffer of two dimensions with a row per block.
_Blocks = Sequence[Buffer] | Buffer
_Quantity = str | float
_Out = TypeVar("_Out", bound=_Blocks)

class Error(Exception): ...
class DataLoss(Error): ...

@final
class Code:
    def __new__(cls, identity: str) -> Code: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __getnewargs__(self, /) -> tuple[str]: ...
    @property
    def k(self) -> int: ...
    @property
    def m(self) -> int: ...
    @property
    def family(self) -> str: ...
    @property
    def w(self) -> int: ...
    @property
    def granule(self) -> int: ...
    def matrix(self) -> list[list[int]]: ...

@final
class ReedSolomon:
    def __new__(cls, code: int | str | Code, m: int | None = None, *, threads: int = 1) -> ReedSolomon: ...
    @property
    def code(self) -> Code: ...
    @overload
    def encode(self, data: _Blocks, out: None = None) -> list[bytearray]: ...
    @overload
    def encode(self, data: _Blocks, out: _Out) -> _Out: ...
    def verify(self, blocks: _Blocks) -> bool: ...
    @overload
    def reconstruct(
        self,
        blocks: Sequence[Buffer | None] | Mapping[int, Buffer],
        *,
        wanted: Sequence[int] | None = None,
        out: None = None,
    ) -> dict[int, bytearray]: ...
    @overload
    def reconstruct(
        self,
        blocks: Sequence[Buffer | None] | Mapping[int, Buffer],
        *,
        wanted: Sequence[int] | None = None,
        out: _Blocks,
    ) -> dict[int, Any]: ...
    def update(self, column: int, old: Buffer, new: Buffer, redundancy: _Blocks) -> None: ...
    def __reduce__(self, /) -> tuple[Any, tuple[str]]: ...

@final
class Signer:
    def __new__(cls) -> Signer: ...
    def sign(self, block: Buffer) -> bytes: ...
    def of_redundancy(self, code: str | Code, signatures: Sequence[bytes]) -> list[bytes]: ...

@final
class Forecast:
    @property
    def code(self) -> str: ...
    @property
    def disks(self) -> int: ...
    @property
    def overhead(self) -> float: ...
    @property
    def mean_hours(self) -> float: ...
    @property
    def mean_hours_text(self) -> str: ...
    @property
    def loss_per_year(self) -> float: ...
    @property
    def nines(self) -> float: ...

def forecast(
    code: str | Code,
    *,
    disks: int | None = None,
    grouped: bool = False,
    capacity: _Quantity | None = None,
    mtbf: _Quantity | None = None,
    afr: _Quantity | None = None,
    rebuild: _Quantity | None = None,
    read_errors: _Quantity | None = None,
    silent: _Quantity | None = None,
    checked: bool = True,
) -> Forecast: ...

@final
class Split:
    @property
    def set(self) -> str: ...
    @property
    def shards(self) -> list[Path]: ...
    @property
    def shard_len(self) -> int: ...
    @property
    def block(self) -> int: ...

@final
class Joined:
    @property
    def set(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def size(self) -> int: ...
    @property
    def missing(self) -> list[int]: ...
    @property
    def notes(self) -> list[ShardNote]: ...

@final
class ShardNote:
    @property
    def path(self) -> Path: ...
    @property
    def text(self) -> str: ...

@final
class SetState:
    @property
    def set(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def code(self) -> str: ...
    @property
    def health(self) -> str: ...
    @property
    def shards(self) -> list[ShardState]: ...
    @property
    def notes(self) -> list[ShardNote]: ...

@final
class ShardState:
    @property
    def index(self) -> int: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def state(self) -> str: ...
    @property
    def description(self) -> str: ...

@final
class RebuiltShard:
    @property
    def index(self) -> int: ...
    @property
    def path(self) -> Path: ...
    @property
    def reason(self) -> str: ...

def split(
    source: _Path,
    out: _Path,
    code: str | Code,
    *,
    block: int = 262144,
    name: _Path | None = None,
    force: bool = False,
    threads: int = 0,
    progress: _Progress | None = None,
) -> Split: ...
def join(
    shards: _Path,
    target: _Path,
    *,
    set: str | None = None,
    force: bool = False,
    threads: int = 0,
    progress: _Progress | None = None,
) -> Joined: ...
def verify(
    shards: _Path,
    *,
    set: str | None = None,
    threads: int = 0,
    progress: _Progress | None = None,
) -> list[SetState]: ...
def repair(
    shards: _Path,
    *,
    set: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    threads: int = 0,
    progress: _Progress | None = None,
) -> list[RebuiltShard]: ...
