#!/usr/bin/env python3
"""Known answers for algebraic signatures, written to standard output as JSON.

Component i of the signature of a block with symbols p0, p1, ... is the sum of p_j * (alpha^(i+1))^j.

Symbols are little endian numbers of GF(2^w) with alpha = x (w = 8, 16, 32, 64), or 64-bit elements of a tower over
GF(2^w) with alpha = Y (w = 4, 8, 16, 32): coefficient i of Y^i in the bits from i * w on. A block that ends
within a symbol is filled up with zeros. Signatures of the kind "independent" have two components in the tower over GF(2^8), at Y and at the
root P of Z^8 + Z^7 + Z + 2^112 whose bytes are below. Everything is polynomial arithmetic on integers, term by term.
"""

import json
import sys

FIELDS = {4: 0x13, 8: 0x11D, 16: 0x1100B, 32: 0x100400007, 64: (1 << 64) | 0x1B}
# Coefficients of the towers' polynomials in Y below the leading one, from Y^0 on.
TOWERS = {
    4: {0: 2, 1: 1, 15: 1},
    8: {0: 2, 1: 1, 7: 1},
    16: {0: 2, 2: 1, 3: 1},
    32: {0: 2, 1: 2},
}
# Byte i of P stands for Y^i.
P = 0x00F3739C1F292B7F
LENGTHS = [1, 8, 13, 64, 200]
COMPONENTS = 3


def field_multiply(w, a, b):
    product = 0
    for bit in range(b.bit_length()):
        if b >> bit & 1:
            product ^= a << bit
    while product.bit_length() > w:
        product ^= FIELDS[w] << (product.bit_length() - w - 1)
    return product


def tower_multiply(w, a, b):
    degree, mask = 64 // w, (1 << w) - 1
    terms = [0] * (2 * degree - 1)
    for i in range(degree):
        for j in range(degree):
            terms[i + j] ^= field_multiply(w, a >> (i * w) & mask, b >> (j * w) & mask)
    for high in range(2 * degree - 2, degree - 1, -1):
        for place, coefficient in TOWERS[w].items():
            terms[high - degree + place] ^= field_multiply(w, terms[high], coefficient)
    return sum(term << (i * w) for i, term in enumerate(terms[:degree]))


def signature(multiply, symbol_bytes, alpha, block):
    padded = block + bytes(-len(block) % symbol_bytes)
    symbols = [
        int.from_bytes(padded[at : at + symbol_bytes], "little") for at in range(0, len(padded), symbol_bytes)
    ]
    components = []
    base = 1
    for _ in range(COMPONENTS):
        base = multiply(base, alpha)
        total, weight = 0, 1
        for symbol in symbols:
            total ^= multiply(symbol, weight)
            weight = multiply(weight, base)
        components.append(f"{total:0{2 * symbol_bytes}x}")
    return components


def independent(block):
    def multiply(a, b):
        return tower_multiply(8, a, b)

    at_y = signature(multiply, 8, 1 << 8, block)[0]
    at_p = signature(multiply, 8, P, block)[0]
    return [at_y, at_p]


def check_point():
    power, powers = 1, []
    for _ in range(9):
        powers.append(power)
        power = tower_multiply(8, power, P)
    constant = 1
    for _ in range(112):
        constant = field_multiply(8, constant, 2)
    assert powers[8] ^ powers[7] ^ powers[1] ^ constant == 0


def main():
    check_point()
    cases = []
    for length in LENGTHS:
        block = bytes((i * i * 7 + i * 31 + length) % 251 for i in range(length))
        for w in (8, 16, 32, 64):
            components = signature(lambda a, b: field_multiply(w, a, b), w // 8, 2, block)
            cases.append({"kind": "field", "w": w, "block": block.hex(), "components": components})
        for w in TOWERS:
            components = signature(lambda a, b: tower_multiply(w, a, b), 8, 1 << w, block)
            cases.append({"kind": "tower", "w": w, "block": block.hex(), "components": components})
        cases.append({"kind": "independent", "w": 8, "block": block.hex(), "components": independent(block)})
    made_by = "vectors/signatures.py: the definition, term by term, on integer polynomials"
    lines = [json.dumps(case, separators=(",", ":")) for case in cases]
    sys.stdout.write('{"made_by": ' + json.dumps(made_by) + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n")


main()
