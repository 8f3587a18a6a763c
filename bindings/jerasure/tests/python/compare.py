"""Calls two builds of libJerasure with the same random arguments and compares what they return and write.

Arguments: the two files, a number of rounds.
"""

import ctypes
import random
import sys

Numbers = ctypes.POINTER(ctypes.c_int)
FUNCTIONS = [
    "reed_sol_vandermonde_coding_matrix",
    "cauchy_original_coding_matrix",
    "jerasure_matrix_to_bitmatrix",
    "jerasure_erasures_to_erased",
]


def load(path):
    library = ctypes.CDLL(path)
    for name in FUNCTIONS:
        getattr(library, name).restype = Numbers
    return library


def numbers(values):
    return (ctypes.c_int * len(values))(*values)


class Stripe:
    """Blocks of one library."""

    def __init__(self, blocks, k):
        self.blocks = [ctypes.create_string_buffer(block, len(block)) for block in blocks]
        pointers = [ctypes.cast(block, ctypes.c_char_p) for block in self.blocks]
        self.data = (ctypes.c_char_p * k)(*pointers[:k])
        self.coding = (ctypes.c_char_p * (len(blocks) - k))(*pointers[k:])

    def content(self):
        return [block.raw for block in self.blocks]


def equal(what, one, other):
    if one != other:
        sys.exit(f"{what} differs")


def lists(what, results, count):
    """Lists of both libraries, or None of both."""
    empty = [not result for result in results]
    equal(f"{what}: null", *empty)
    if empty[0]:
        return None
    one, other = ([result[i] for i in range(count)] for result in results)
    equal(what, one, other)
    return one


def coding(libraries, seed):
    draw = random.Random(seed)
    w = draw.choice([4, 8, 8, 16, 16, 32])
    k, m = draw.randint(1, 12), draw.randint(1, 5)
    kind = "cauchy" if w == 4 or draw.random() < 0.5 else "vandermonde"
    name = "cauchy_original_coding_matrix" if kind == "cauchy" else "reed_sol_vandermonde_coding_matrix"
    what = f"seed {seed}: {name}({k}, {m}, {w})"
    matrix = lists(what, [getattr(library, name)(k, m, w) for library in libraries], k * m)
    if matrix is None:
        return
    bits = lists(
        what + ", bits",
        [library.jerasure_matrix_to_bitmatrix(k, m, w, numbers(matrix)) for library in libraries],
        k * m * w * w,
    )
    lost = draw.sample(range(k + m), draw.randint(0, m + 1))
    erasures = numbers([*lost, -1])
    erased = lists(
        what + ", erased", [library.jerasure_erasures_to_erased(k, m, erasures) for library in libraries], k + m
    )
    for packets in [False, True] if w != 4 else [True]:
        packet = draw.choice([8, 16, 64]) if packets else 0
        size = packet * w * draw.randint(1, 5) if packets else draw.choice([32, 64, 800, 4096])
        rows = numbers(bits if packets else matrix)
        tail = (size, packet) if packets else (size,)
        prefix = "jerasure_bitmatrix" if packets else "jerasure_matrix"
        blocks = [draw.randbytes(size) for _ in range(k)] + [bytes(size)] * m
        stripes = [Stripe(blocks, k) for _ in libraries]
        for library, stripe in zip(libraries, stripes):
            getattr(library, prefix + "_encode")(k, m, w, rows, stripe.data, stripe.coding, *tail)
        equal(f"{what}, {prefix}_encode", *(stripe.content() for stripe in stripes))
        whole = stripes[0].content()
        damaged = [bytes(size) if column in lost else block for column, block in enumerate(whole)]
        stripes = [Stripe(damaged, k) for _ in libraries]
        ones = int(kind == "vandermonde")
        status = [
            getattr(library, prefix + "_decode")(k, m, w, rows, ones, erasures, stripe.data, stripe.coding, *tail)
            for library, stripe in zip(libraries, stripes)
        ]
        equal(f"{what}, {prefix}_decode: status, lost {lost}", *status)
        if status[0] == 0:
            equal(f"{what}, {prefix}_decode, lost {lost}", *(stripe.content() for stripe in stripes))
            equal(f"{what}, {prefix}_decode and what was encoded", stripes[0].content(), whole)
        if erased is None:
            continue
        unit = w if packets else 1
        made = []
        for library in libraries:
            decoding, ids = (ctypes.c_int * (k * k * unit * unit))(), (ctypes.c_int * k)()
            name = "jerasure_make_decoding_" + ("bitmatrix" if packets else "matrix")
            result = getattr(library, name)(k, m, w, rows, numbers(erased), decoding, ids)
            made.append((result, list(decoding), list(ids)) if result == 0 else (result,))
        equal(f"{what}, {prefix}: decoding matrix", *made)
        # One lost data block by the rows of that matrix.
        wanted = [column for column in lost if column < k]
        if made[0][0] != 0 or not wanted:
            continue
        decoding, ids = made[0][1], numbers(made[0][2])
        row = numbers(decoding[wanted[0] * k * unit * unit : (wanted[0] + 1) * k * unit * unit])
        stripes = [Stripe(damaged, k) for _ in libraries]
        for library, stripe in zip(libraries, stripes):
            getattr(library, prefix + "_dotprod")(k, w, row, ids, wanted[0], stripe.data, stripe.coding, *tail)
        equal(f"{what}, {prefix}_dotprod", *(stripe.content() for stripe in stripes))
        equal(f"{what}, {prefix}_dotprod and what was lost", stripes[0].content()[wanted[0]], whole[wanted[0]])


def main():
    libraries = [load(path) for path in sys.argv[1:3]]
    for seed in range(int(sys.argv[3])):
        coding(libraries, seed)
    print("same")


if __name__ == "__main__":
    main()
