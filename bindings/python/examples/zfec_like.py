"""Blocks in the manner of zfec: any k numbered blocks bring the first k back.

zfec                                    gabion
Encoder(k, n).encode(blocks)            [*blocks, *ReedSolomon(k, n - k).encode(blocks)]
Decoder(k, n).decode(blocks, numbers)   the function `decode` below
"""

import gabion


def decode(rs: gabion.ReedSolomon, blocks: list[bytes], numbers: list[int]) -> list[bytes]:
    """The k data blocks, from any k blocks and their numbers."""
    have: dict[int, bytes] = dict(zip(numbers, blocks, strict=True))
    lost = [column for column in range(rs.code.k) if column not in have]
    restored = rs.reconstruct(have, wanted=lost)
    return [bytes(restored[column]) if column in restored else have[column] for column in range(rs.code.k)]


def main() -> None:
    rs = gabion.ReedSolomon(3, 2)
    data = [b"any three", b"blocks of", b"five will"]
    everything = [*data, *map(bytes, rs.encode(data))]
    numbers = [4, 1, 3]
    assert decode(rs, [everything[number] for number in numbers], numbers) == data
    print("decoded from blocks", numbers)


if __name__ == "__main__":
    main()
