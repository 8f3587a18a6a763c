"""A contender of `gabion-bench compare --bindings` in a process of its own.

Arguments: case, k, m, bytes of a block. Reads numbers of passes, one per line, and answers with the seconds they took.
The first answer is the redundancy of a fixed stripe as a hash, where the library gives it.
"""

import ctypes
import hashlib
import sys
import time


def stripe(k, length):
    """The data of all contenders."""
    block = bytes(range(256)) * (length // 256 + 1)
    return [block[column : column + length - 1] + bytes([column]) for column in range(k)]


def digest(blocks):
    return hashlib.sha256(b"".join(map(bytes, blocks))).hexdigest()


def of_gabion(k, m, length):
    import gabion
    import numpy

    rs = gabion.ReedSolomon(k, m)
    data = numpy.array([numpy.frombuffer(block, dtype=numpy.uint8) for block in stripe(k, length)])
    out = numpy.zeros((m, length), dtype=numpy.uint8)
    rs.encode(data, out)
    return digest(out), lambda: rs.encode(data, out)


def of_gabion_new(k, m, length):
    """As zfec: the result is new objects."""
    import gabion

    rs, data = gabion.ReedSolomon(k, m), stripe(k, length)
    return digest(rs.encode(data)), lambda: rs.encode(data)


def of_zfec(k, m, length):
    import zfec

    encoder, data, wanted = zfec.Encoder(k, k + m), stripe(k, length), list(range(k, k + m))
    return "", lambda: encoder.encode(data, wanted)


def of_pyeclib(k, m, length):
    from pyeclib.ec_iface import ECDriver

    driver, data = ECDriver(k=k, m=m, ec_type="isa_l_rs_cauchy"), b"".join(stripe(k, length))
    return "", lambda: driver.encode(data)


class Arguments(ctypes.Structure):
    """`struct ec_args` of liberasurecode."""

    _fields_ = [
        ("k", ctypes.c_int),
        ("m", ctypes.c_int),
        ("w", ctypes.c_int),
        ("hd", ctypes.c_int),
        ("reserved", ctypes.c_uint64 * 4),
        ("more", ctypes.c_void_p),
        ("checksum", ctypes.c_int),
    ]


ISA_L_RS_CAUCHY = 7
NO_CHECKSUM = 1
FRAGMENTS = ctypes.POINTER(ctypes.c_char_p)


class Liberasurecode:
    """An instance of a codec of liberasurecode, and one encoded object."""

    def __init__(self, k, m, length):
        self.library = ctypes.CDLL("liberasurecode.so.1")
        arguments = Arguments(k=k, m=m, w=8, hd=m, checksum=NO_CHECKSUM)
        self.instance = self.library.liberasurecode_instance_create(ISA_L_RS_CAUCHY, ctypes.byref(arguments))
        if self.instance <= 0:
            raise RuntimeError(f"liberasurecode_instance_create: {self.instance}")
        self.k, self.m = k, m
        self.object = b"".join(stripe(k, length))
        self.data, self.redundancy = ctypes.POINTER(ctypes.c_void_p)(), ctypes.POINTER(ctypes.c_void_p)()
        self.fragment = ctypes.c_uint64()

    def encode(self):
        status = self.library.liberasurecode_encode(
            self.instance, self.object, ctypes.c_uint64(len(self.object)), ctypes.byref(self.data),
            ctypes.byref(self.redundancy), ctypes.byref(self.fragment),
        )
        if status:
            raise RuntimeError(f"liberasurecode_encode: {status}")

    def release(self):
        self.library.liberasurecode_encode_cleanup(self.instance, self.data, self.redundancy)

    def decode(self, fragments, count):
        out, length = ctypes.c_void_p(), ctypes.c_uint64()
        status = self.library.liberasurecode_decode(
            self.instance, fragments, count, self.fragment, 0, ctypes.byref(out), ctypes.byref(length)
        )
        if status:
            raise RuntimeError(f"liberasurecode_decode: {status}")
        return out, length


def of_liberasurecode_encode(k, m, length):
    codec = Liberasurecode(k, m, length)
    codec.encode()
    found = digest(ctypes.string_at(codec.redundancy[i], codec.fragment.value) for i in range(m))
    codec.release()

    def one():
        codec.encode()
        codec.release()

    return found, one


def of_liberasurecode_decode(k, m, length):
    """The first m data fragments are lost."""
    codec = Liberasurecode(k, m, length)
    codec.encode()
    left = [codec.data[i] for i in range(m, k)] + [codec.redundancy[i] for i in range(m)]
    fragments = (ctypes.c_void_p * len(left))(*left)
    out, size = codec.decode(fragments, len(left))
    found = digest([ctypes.string_at(out, size.value)])
    codec.library.liberasurecode_decode_cleanup(codec.instance, out)

    def one():
        out, _ = codec.decode(fragments, len(left))
        codec.library.liberasurecode_decode_cleanup(codec.instance, out)

    return found, one


CASES = {
    "gabion": of_gabion,
    "gabion-new": of_gabion_new,
    "zfec": of_zfec,
    "pyeclib": of_pyeclib,
    "liberasurecode-encode": of_liberasurecode_encode,
    "liberasurecode-decode": of_liberasurecode_decode,
}


def main():
    case, *numbers = sys.argv[1:]
    found, one = CASES[case](*map(int, numbers))
    print(found, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            one()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
