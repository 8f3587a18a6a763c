"""A driver in the manner of PyECLib: one object of bytes in, k + m fragments out, each with what is needed to decode.

A fragment is a header (length of the object, index, signature of the block) and a block. A fragment whose signature
does not match is left out, so that damage is repaired, not spread.
"""

import struct

import gabion

HEADER = struct.Struct("<QI16s")


class Driver:
    """Encodes objects with one code."""

    def __init__(self, k: int, m: int) -> None:
        self.rs = gabion.ReedSolomon(k, m)
        self.signer = gabion.Signer()

    def encode(self, data: bytes) -> list[bytes]:
        """The k + m fragments of an object."""
        k = self.rs.code.k
        length = -(-len(data) // k)
        padded = data.ljust(k * length, b"\0")
        blocks = [padded[start : start + length] for start in range(0, k * length, length or 1)]
        blocks = blocks or [b""] * k
        blocks += map(bytes, self.rs.encode(blocks))
        return [
            HEADER.pack(len(data), index, self.signer.sign(block)) + block for index, block in enumerate(blocks)
        ]

    def good(self, fragments: list[bytes]) -> tuple[int, dict[int, bytes]]:
        """Length of the object, and the blocks that match their signatures, by index."""
        size, blocks = 0, {}
        for fragment in fragments:
            if len(fragment) < HEADER.size:
                continue
            length, index, signature = HEADER.unpack_from(fragment)
            block = fragment[HEADER.size :]
            if self.signer.sign(block) == signature:
                size, blocks[index] = length, block
        return size, blocks

    def decode(self, fragments: list[bytes]) -> bytes:
        """The object, from any k good fragments in any order."""
        size, blocks = self.good(fragments)
        k = self.rs.code.k
        lost = [index for index in range(k) if index not in blocks]
        restored = self.rs.reconstruct(blocks, wanted=lost)
        return b"".join(restored.get(index, blocks.get(index, b"")) for index in range(k))[:size]

    def reconstruct(self, fragments: list[bytes], wanted: list[int]) -> list[bytes]:
        """Lost fragments."""
        size, blocks = self.good(fragments)
        restored = self.rs.reconstruct(blocks, wanted=wanted)
        return [
            HEADER.pack(size, index, self.signer.sign(block)) + bytes(block) for index, block in restored.items()
        ]


def main() -> None:
    driver = Driver(6, 3)
    data = b"an object of any length " * 1000
    fragments = driver.encode(data)
    damaged = bytearray(fragments[2])
    damaged[-1] ^= 1
    left = [fragments[8], bytes(damaged), fragments[1], *fragments[3:7]]
    assert driver.decode(left) == data
    assert driver.reconstruct(left, [2]) == [fragments[2]]
    print("decoded from", len(left) - 1, "good fragments")


if __name__ == "__main__":
    main()
