#!/usr/bin/env python3
"""Known answers for RAID-Z, written to standard output as JSON.

    P = d0 + d1 + ... + d(k-1)
    Q = ((d0 * 2 + d1) * 2 + ...) + d(k-1)
    R = ((d0 * 4 + d1) * 4 + ...) + d(k-1)

over GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), byte by byte. Products are polynomial products
of integers reduced by long division: slow, and short enough to check by reading.

Each of the seven reconstructions is carried out here as well, by elimination, from the parity it is
named after, and must give back the lost data before the case is written.
"""

import json
import sys

POLYNOMIAL = 0x11D
MULTIPLIER = {"p": 1, "q": 2, "r": 4}
RECONSTRUCTIONS = ["p", "q", "r", "pq", "pr", "qr", "pqr"]
DATA_COLUMNS = [1, 2, 3, 8, 17]
BLOCK_LENGTHS = [1, 64, 67]
MASK = (1 << 64) - 1


def multiply(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        b >>= 1
    while product.bit_length() > 8:
        product ^= POLYNOMIAL << (product.bit_length() - 9)
    return product


def power(base, exponent):
    result = 1
    for _ in range(exponent):
        result = multiply(result, base)
    return result


def inverse(a):
    return power(a, 254)


def painted(name, length):
    """FNV-1a of the name seeds SplitMix64, as in the other known answers."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    out = b""
    while len(out) < length:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        word ^= word >> 31
        out += word.to_bytes(8, "little")
    return out[:length]


def parity(letter, data):
    out = bytes(len(data[0]))
    for block in data:
        out = bytes(multiply(o, MULTIPLIER[letter]) ^ b for o, b in zip(out, block))
    return out


def coefficient(letter, column, k):
    """What Horner's rule multiplies a column with in the end."""
    return power(MULTIPLIER[letter], k - 1 - column)


def solve(matrix, right):
    """Gauss-Jordan over GF(2^8); the right-hand sides are blocks. None if singular."""
    size = len(matrix)
    matrix = [row[:] for row in matrix]
    right = [bytes(block) for block in right]
    for step in range(size):
        pivot = next((row for row in range(step, size) if matrix[row][step]), None)
        if pivot is None:
            return None
        matrix[step], matrix[pivot] = matrix[pivot], matrix[step]
        right[step], right[pivot] = right[pivot], right[step]
        scale = inverse(matrix[step][step])
        matrix[step] = [multiply(scale, cell) for cell in matrix[step]]
        right[step] = bytes(multiply(scale, byte) for byte in right[step])
        for row in range(size):
            factor = matrix[row][step]
            if row == step or factor == 0:
                continue
            matrix[row] = [a ^ multiply(factor, b) for a, b in zip(matrix[row], matrix[step])]
            right[row] = bytes(a ^ multiply(factor, b) for a, b in zip(right[row], right[step]))
    return right


def reconstruct(letters, lost, data, redundancy):
    """The lost columns from the others and the named parities; the lost data is never looked at."""
    k = len(data)
    syndromes = []
    for letter in letters:
        kept = [bytes(len(block)) if i in lost else block for i, block in enumerate(data)]
        syndromes.append(bytes(a ^ b for a, b in zip(redundancy[letter], parity(letter, kept))))
    return solve([[coefficient(letter, i, k) for i in lost] for letter in letters], syndromes)


def losses(count, k):
    """The first columns, the last ones, and ones far apart."""
    patterns = [list(range(count)), list(range(k - count, k))]
    patterns.append(sorted({0, k // 2, k - 1} if count == 3 else {0, k - 1} if count == 2 else {k // 2}))
    unique = []
    for pattern in patterns:
        if len(pattern) == count and pattern not in unique:
            unique.append(pattern)
    return unique


def case(k, m, length):
    code = f"raidz:{k}+{m}:w8"
    letters = "pqr"[:m]
    data = [painted(f"{code}/{length}/{i}", length) for i in range(k)]
    redundancy = {letter: parity(letter, data) for letter in letters}
    reconstructions = []
    for method in RECONSTRUCTIONS:
        if len(method) > k or not set(method) <= set(letters):
            continue
        for lost in losses(len(method), k):
            expected = [data[i] for i in lost]
            if reconstruct(method, lost, data, redundancy) != expected:
                sys.exit(f"{code}: {method} cannot restore columns {lost}")
            reconstructions.append(
                {"method": method, "lost": lost, "restored": [block.hex() for block in expected]}
            )
    return {
        "code": code,
        "source": "vectors/raidz.py",
        "block": length,
        "matrix": [[f"{coefficient(letter, i, k):02x}" for i in range(k)] for letter in letters],
        "data": [block.hex() for block in data],
        "redundancy": [redundancy[letter].hex() for letter in letters],
        "reconstructions": reconstructions,
    }


def main():
    cases = [case(k, m, n) for k in DATA_COLUMNS for m in (1, 2, 3) for n in BLOCK_LENGTHS]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases)
    made_by = "vectors/raidz.py: integer polynomials modulo 0x11d, Horner's rule, reconstructions by elimination"
    print(f'{{"made_by": {json.dumps(made_by)}, "cases": [\n{lines}\n]}}')


main()
