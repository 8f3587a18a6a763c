#!/usr/bin/env python3
"""Known answers for the subspace codes, written to standard output as JSON.

Points are numbers of GF(2^w), V is the subspace 0, 1, ..., n-1 for a power of two n, a coset of it n numbers in
sequence that begin at a multiple of n. Redundancy is made by interpolating on one and evaluating on the other, with the
additive FFT of Lin, Chung and Han; the matrix is what that makes of unit vectors. Where a field has no cosets
left, a block has a point of V that nobody else has, and the entries of its row or column are 1 / (p + x).

Products are polynomial products of integers reduced by long division: slow, and short enough to check by reading.
"""

import functools
import json
import sys

FIELDS = {4: 0x13, 8: 0x11D, 16: 0x1100B}
BLOCK_LENGTHS = [2, 16, 66]
SHAPES = {
    4: [(13, 3), (5, 11)],
    8: [(4, 2), (10, 4), (16, 4), (30, 3), (45, 8), (64, 16), (30, 33), (253, 3)],
    16: [(10, 4), (40, 9)],
}
MASK = (1 << 64) - 1


def rounded_up(n):
    """The least power of two that is at least n."""
    return 1 << (n - 1).bit_length()


@functools.cache
def multiply(w, a, b):
    product = 0
    for bit in range(b.bit_length()):
        if b >> bit & 1:
            product ^= a << bit
    while product.bit_length() > w:
        product ^= FIELDS[w] << (product.bit_length() - w - 1)
    return product


@functools.cache
def inverse(w, a):
    """a^(2^w - 2), by squaring."""
    result = 1
    for _ in range(w - 1):
        a = multiply(w, a, a)
        result = multiply(w, result, a)
    return result


@functools.cache
def vanishing(w, n, x):
    """The product of x + v over all v of V."""
    product = 1
    for v in range(n):
        product = multiply(w, product, x ^ v)
    return product


def twiddle(w, half, start):
    return multiply(w, vanishing(w, half, start), inverse(w, vanishing(w, half, half)))


def interpolate(w, values, start):
    """The polynomial with these values at start, start + 1, ..., in the basis of the FFT."""
    if len(values) == 1:
        return values
    half = len(values) // 2
    low = interpolate(w, values[:half], start)
    high = interpolate(w, values[half:], start + half)
    s = twiddle(w, half, start)
    high = [b ^ a for a, b in zip(low, high)]
    low = [a ^ multiply(w, s, b) for a, b in zip(low, high)]
    return low + high


def evaluate(w, coefficients, start):
    """The values at start, start + 1, ... of a polynomial in the basis of the FFT."""
    if len(coefficients) == 1:
        return coefficients
    half = len(coefficients) // 2
    low, high = coefficients[:half], coefficients[half:]
    s = twiddle(w, half, start)
    low = [a ^ multiply(w, s, b) for a, b in zip(low, high)]
    high = [b ^ a for a, b in zip(low, high)]
    return evaluate(w, low, start) + evaluate(w, high, start + half)


def redundancy_of_many(w, k, m, data):
    """No more redundancy than data, both rounded up: redundancy on V, data on its cosets."""
    n = rounded_up(m)
    in_cosets = min(k, (1 << w) - n)
    coefficients = [0] * n
    for at in range(0, in_cosets, n):
        values = data[at : min(at + n, in_cosets)]
        polynomial = interpolate(w, values + [0] * (n - len(values)), n + at)
        coefficients = [a ^ b for a, b in zip(coefficients, polynomial)]
    redundancy = evaluate(w, coefficients, 0)[:m]
    for left, value in enumerate(data[in_cosets:]):
        redundancy = [r ^ multiply(w, value, inverse(w, i ^ (m + left))) for i, r in enumerate(redundancy)]
    return redundancy


def redundancy_of_few(w, k, m, data):
    """More redundancy than data: data on V, redundancy on its cosets."""
    n = rounded_up(k)
    in_cosets = min(m, (1 << w) - n)
    polynomial = interpolate(w, data + [0] * (n - k), 0)
    redundancy = []
    for at in range(0, in_cosets, n):
        redundancy += evaluate(w, polynomial, n + at)
    redundancy = redundancy[:in_cosets]
    for left in range(m - in_cosets):
        terms = [multiply(w, value, inverse(w, (k + left) ^ j)) for j, value in enumerate(data)]
        redundancy.append(functools.reduce(lambda a, b: a ^ b, terms))
    return redundancy


def redundancy_of(w, k, m, data):
    encode = redundancy_of_many if rounded_up(m) <= rounded_up(k) else redundancy_of_few
    return encode(w, k, m, data)


def symbols(w, block):
    number = int.from_bytes(block, "little")
    return [number >> at & ((1 << w) - 1) for at in range(0, 8 * len(block), w)]


def block_of(w, values):
    number = sum(value << (i * w) for i, value in enumerate(values))
    return number.to_bytes(len(values) * w // 8, "little")


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


def case(w, k, m, length):
    code = f"subspace:{k}+{m}:w{w}"
    columns = [redundancy_of(w, k, m, [int(i == j) for i in range(k)]) for j in range(k)]
    data = [painted(f"{code}/{length}/{i}", length) for i in range(k)]
    stripes = zip(*(symbols(w, block) for block in data))
    redundancy = zip(*(redundancy_of(w, k, m, list(stripe)) for stripe in stripes))
    return {
        "code": code,
        "source": "vectors/subspace.py",
        "block": length,
        "matrix": [[f"{column[i]:0{w // 4}x}" for column in columns] for i in range(m)],
        "data": [block.hex() for block in data],
        "redundancy": [block_of(w, values).hex() for values in redundancy],
    }


def main():
    cases = [case(w, k, m, n) for w in SHAPES for k, m in SHAPES[w] for n in BLOCK_LENGTHS]
    made_by = "vectors/subspace.py: interpolation and evaluation by additive FFTs on integer polynomials"
    lines = [json.dumps(entry, separators=(",", ":")) for entry in cases]
    sys.stdout.write('{"made_by": ' + json.dumps(made_by) + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n")


main()
