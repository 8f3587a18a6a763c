"""Tests of the installed package. `python -m unittest discover bindings/python/tests`"""

import doctest
import gc
import mmap
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

import gabion
import numpy as np
from gabion import shards

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE.parents[2] / "docs" / "reference" / "python.md"


def random_blocks(count, length, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (count, length), dtype=np.uint8)


class Documentation(unittest.TestCase):
    def test_examples_of_the_docstrings(self):
        finder = doctest.DocTestFinder()
        parts = [gabion, shards, gabion.Code, gabion.ReedSolomon, gabion.Signer, gabion.forecast]
        for part in parts:
            name = part.__name__
            tests = [test for test in finder.find(part, name, globs={}) if test.examples]
            self.assertTrue(tests, f"{name} has no example")
            for test in tests:
                self.assertEqual(doctest.DocTestRunner().run(test).failed, 0, test.name)

    def test_examples_of_the_reference(self):
        result = doctest.testfile(str(REFERENCE), module_relative=False)
        self.assertEqual(result.failed, 0)
        self.assertGreater(result.attempted, 10)

    def test_example_programs(self):
        for program in sorted((HERE.parent / "examples").glob("*.py")):
            run = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("decoded", run.stdout)

    def test_everything_public_has_a_docstring(self):
        for module in (gabion, shards):
            for name in set(module.__all__) - {"__version__"}:
                thing = getattr(module, name)
                self.assertTrue(thing.__doc__, name)
                for member, value in vars(thing).items() if isinstance(thing, type) else ():
                    if not member.startswith("_"):
                        self.assertTrue(value.__doc__, f"{name}.{member}")


class Codes(unittest.TestCase):
    def test_identities(self):
        code = gabion.Code("cauchy:6+3:w16")
        self.assertEqual((code.k, code.m, code.w, code.family, code.granule), (6, 3, 16, "cauchy", 2))
        self.assertEqual(gabion.Code("10+4"), gabion.Code("subspace:10+4:w8"))
        self.assertEqual(len({gabion.Code("10+4"), gabion.Code("subspace:10+4:w8"), code}), 2)
        self.assertEqual(pickle.loads(pickle.dumps(code)), code)
        self.assertEqual([len(row) for row in code.matrix()], [6, 6, 6])
        # ISA-L's first redundancy row: 1 / (k XOR column).
        self.assertEqual(gabion.Code("cauchy-isal:4+2").matrix()[0], [71, 167, 122, 186])

    def test_refused(self):
        for identity in ["", "10", "0+4", "300+4", "nothing:4+2", "4+2:w9\0", "9" * 100 + "+2"]:
            with self.assertRaises(gabion.Error, msg=identity):
                gabion.Code(identity)
        for wrong in (3, None, b"10+4", 1.5):
            with self.assertRaises(TypeError):
                gabion.Code(wrong)
        for call in (
            lambda: gabion.ReedSolomon(3),
            lambda: gabion.ReedSolomon("4+2", 2),
            lambda: gabion.ReedSolomon(0, 2),
            lambda: gabion.ReedSolomon(200, 200),
            lambda: gabion.ReedSolomon(True, 1, threads=10**9),
        ):
            with self.assertRaises(gabion.Error):
                call()
        with self.assertRaises(TypeError):
            gabion.ReedSolomon(None)
        with self.assertRaises(OverflowError):
            gabion.ReedSolomon(-1, 1)
        with self.assertRaises(OverflowError):
            gabion.ReedSolomon(2**70, 1)


class Stripes(unittest.TestCase):
    def test_every_kind_of_buffer_gives_the_same_bytes(self):
        rs = gabion.ReedSolomon(4, 2)
        data = random_blocks(4, 96)
        expected = [bytes(block) for block in rs.encode(data)]
        rows = [row.tobytes() for row in data]
        mapped = mmap.mmap(-1, 96)
        mapped[:] = rows[3]
        kinds = [
            rows,
            tuple(map(bytearray, rows)),
            [memoryview(row) for row in rows],
            [rows[0], bytearray(rows[1]), np.frombuffer(rows[2], dtype=np.float32), mapped],
            data.view(np.uint32),
            data.reshape(4, 12, 8),
            memoryview(data),
        ]
        for kind in kinds:
            self.assertEqual([bytes(block) for block in rs.encode(kind)], expected)
        out = np.zeros((2, 24), dtype=np.int32)
        self.assertIs(rs.encode(data, out), out)
        self.assertEqual([row.tobytes() for row in out], expected)
        out = [bytearray(96), memoryview(bytearray(96))]
        self.assertIs(rs.encode(data, out=out), out)
        self.assertEqual([bytes(block) for block in out], expected)

    def test_every_loss_is_repaired(self):
        rs = gabion.ReedSolomon("cauchy-isal:4+2")
        data = random_blocks(4, 40)
        blocks = [row.tobytes() for row in data] + [bytes(block) for block in rs.encode(data)]
        self.assertTrue(rs.verify(blocks))
        for first in range(6):
            for second in range(first, 6):
                lost = sorted({first, second})
                left = [None if column in lost else block for column, block in enumerate(blocks)]
                self.assertEqual(rs.reconstruct(left), {column: blocks[column] for column in lost})
                by_column = {column: block for column, block in enumerate(blocks) if column not in lost}
                out = np.empty((1, 40), dtype=np.uint8)
                restored = rs.reconstruct(by_column, wanted=[second], out=out)
                self.assertEqual(out[0].tobytes(), blocks[second])
                self.assertEqual(restored[second].tobytes(), blocks[second])

    def test_updates(self):
        rs = gabion.ReedSolomon(10, 4)
        data = random_blocks(10, 1 << 16)
        redundancy = np.array(rs.encode(data), dtype=np.uint8)
        new = random_blocks(1, 1 << 16, seed=2)[0]
        rs.update(3, data[3], new, redundancy)
        data[3] = new
        self.assertTrue(rs.verify([*data, *redundancy]))
        redundancy[3, -1] ^= 1
        self.assertFalse(rs.verify([*data, *redundancy]))

    def test_other_fields_and_threads(self):
        for identity in ("300+20:w16", "cauchy-good:6+2:w4:packets=64", "raidz:5+3"):
            rs = gabion.ReedSolomon(identity, threads=2)
            data = random_blocks(rs.code.k, 64 * rs.code.granule)
            blocks = [*data, *rs.encode(data)]
            kept = bytes(blocks[1])
            blocks[1] = None
            self.assertEqual(bytes(rs.reconstruct(blocks)[1]), kept, identity)

    def test_empty_blocks(self):
        rs = gabion.ReedSolomon(2, 1)
        self.assertEqual(rs.encode([b"", b""]), [bytearray()])
        self.assertEqual(rs.encode(np.empty((2, 0), dtype=np.uint8)), [bytearray()])
        self.assertEqual(rs.reconstruct([b"", None, b""]), {1: bytearray()})

    def test_refused(self):
        rs = gabion.ReedSolomon(2, 2)
        data = random_blocks(2, 64)
        kept = data.copy()
        one, other = bytearray(64), bytearray(64)
        refused = [
            (BufferError, lambda: rs.encode(data[:, ::2])),
            (BufferError, lambda: rs.encode(np.asfortranarray(data))),
            (BufferError, lambda: rs.encode(data, [bytes(64), one])),
            (BufferError, lambda: rs.encode(bytes(128))),
            (BufferError, lambda: rs.encode("ab")),
            (BufferError, lambda: rs.encode([b"a", 3])),
            (BufferError, lambda: rs.encode(np.array([[None] * 8] * 2))),
            (BufferError, lambda: rs.encode(data, np.array([[None] * 8] * 2))),
            (BufferError, lambda: rs.encode(data, np.zeros((2, 4), dtype=[("a", "O"), ("b", "i8")]))),
            (gabion.Error, lambda: rs.encode(5)),
            (gabion.Error, lambda: rs.encode({1, 2})),
            (gabion.Error, lambda: rs.encode([bytes(64)])),
            (gabion.Error, lambda: rs.encode(data, [one])),
            (gabion.Error, lambda: rs.encode(data, [one, bytearray(63)])),
            (gabion.Error, lambda: rs.encode(data, data)),
            (gabion.Error, lambda: rs.encode(data, [one, one])),
            (gabion.Error, lambda: rs.encode(data, [memoryview(one + other)[:64], data[0]])),
            (gabion.DataLoss, lambda: rs.reconstruct([data[0], None, None, None])),
            (gabion.Error, lambda: rs.reconstruct([data[0], None, None])),
            (gabion.Error, lambda: rs.reconstruct({0: data[0], 4: data[1]})),
            (gabion.Error, lambda: rs.reconstruct([*data, None, None], wanted=[9])),
            (gabion.Error, lambda: rs.reconstruct([*data, None, None], wanted=[2, 2])),
            (gabion.Error, lambda: rs.reconstruct([*data, None, None], out=[one])),
            (gabion.Error, lambda: rs.update(2, data[0], data[1], [one, other])),
            (gabion.Error, lambda: rs.update(0, data[0], data[1], [one, one])),
            (gabion.Error, lambda: rs.update(0, data[0], data[1][:8], [one, other])),
            (gabion.Error, lambda: rs.verify([one] * 3)),
        ]
        for number, (error, call) in enumerate(refused):
            with self.assertRaises(error, msg=f"call {number}"):
                call()
        # Rows of a memoryview are no objects: refused before anything is written.
        out = memoryview(bytearray(b"x" * 128)).cast("B", (2, 64))
        with self.assertRaises(NotImplementedError):
            rs.reconstruct([*data, None, None], out=out)
        self.assertEqual(out.tobytes(), b"x" * 128)
        self.assertEqual((one, other), (bytearray(64), bytearray(64)))
        np.testing.assert_array_equal(data, kept)

    def test_a_buffer_is_held_during_a_call_only(self):
        rs = gabion.ReedSolomon(1, 1)
        data, out = bytearray(64), bytearray(64)
        rs.encode([data], [out])
        with self.assertRaises(gabion.Error):
            rs.encode([data], [data])
        data.extend(b"longer")
        out.clear()
        gc.collect()

    def test_threads_of_python_share_an_object(self):
        rs = gabion.ReedSolomon(10, 4)
        data = random_blocks(10, 1 << 15)
        expected = [bytes(block) for block in rs.encode(data)]
        wrong = []

        def work():
            for _ in range(50):
                if [bytes(block) for block in rs.encode(data)] != expected:
                    wrong.append(threading.get_ident())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_an_object_is_pickled_by_its_code(self):
        rs = pickle.loads(pickle.dumps(gabion.ReedSolomon("cauchy:3+2", threads=1)))
        self.assertEqual(rs.code, gabion.Code("cauchy:3+2"))


class Signatures(unittest.TestCase):
    def test_the_law(self):
        rs, signer = gabion.ReedSolomon(10, 4), gabion.Signer()
        data = random_blocks(10, 4096)
        redundancy = rs.encode(data)
        signatures = [signer.sign(block) for block in data]
        expected = [signer.sign(block) for block in redundancy]
        self.assertEqual(signer.of_redundancy(rs.code, signatures), expected)
        self.assertEqual(signer.of_redundancy("10+4", signatures), expected)
        self.assertEqual({len(signature) for signature in signatures}, {16})
        redundancy[2][77] ^= 4
        self.assertNotEqual(signer.sign(redundancy[2]), expected[2])

    def test_refused(self):
        signer = gabion.Signer()
        for code, signatures in [
            ("2+1", [bytes(16)]),
            ("2+1", [bytes(16), bytes(15)]),
            ("2+1:w16", [bytes(16)] * 2),
            ("cauchy-good:2+1:w4:packets=64", [bytes(16)] * 2),
        ]:
            with self.assertRaises(gabion.Error, msg=code):
                signer.of_redundancy(code, signatures)
        with self.assertRaises(BufferError):
            signer.sign(7)


class ShardFiles(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.source = self.place / "source"
        self.source.write_bytes(random_blocks(1, 3_000_001).tobytes())
        self.shards = self.place / "shards"

    def split(self, **named):
        return shards.split(self.source, self.shards, "4+2", block=1 << 16, **named)

    def test_damage_is_found_and_repaired(self):
        made = self.split()
        self.assertEqual([path.stat().st_size for path in made.shards], [made.shard_len] * 6)
        made.shards[0].unlink()
        damaged = bytearray(made.shards[5].read_bytes())
        damaged[100_000] ^= 255
        made.shards[5].write_bytes(damaged)
        [state] = shards.verify(str(self.shards), set=made.set[:8])
        self.assertEqual((state.health, state.size, state.name), ("recoverable", 3_000_001, "source"))
        self.assertEqual({shard.index: shard.state for shard in state.shards if shard.state != "ok"},
                         {0: "missing", 5: "bad blocks"})
        self.assertEqual([it.index for it in shards.repair(self.shards, dry_run=True)], [0, 5])
        self.assertFalse(made.shards[0].exists())
        self.assertEqual([it.index for it in shards.repair(self.shards)], [0, 5])
        self.assertEqual(shards.repair(self.shards), [])
        self.assertEqual(shards.verify(self.shards)[0].health, "good")
        joined = shards.join(self.shards, self.place / "copy")
        self.assertEqual((joined.path.read_bytes(), joined.missing), (self.source.read_bytes(), []))

    def test_progress_reaches_the_end(self):
        steps = []
        self.split(progress=lambda *step: steps.append(step))
        self.assertEqual(steps[0], ("split", 0, 3_000_001))
        self.assertEqual(steps[-1], ("split", 3_000_001, 3_000_001))
        self.assertEqual(steps, sorted(steps))

    def test_an_exception_ends_the_work(self):
        class Enough(Exception):
            pass

        def stop(name, done, total):
            if done > 0:
                raise Enough(name)

        with self.assertRaises(Enough):
            self.split(progress=stop)
        self.assertEqual(list(self.shards.iterdir()), [])
        with self.assertRaises(TypeError):
            self.split(progress=lambda: None)
        self.split()
        with self.assertRaises(Enough):
            shards.join(self.shards, self.place / "copy", progress=stop)
        self.assertFalse((self.place / "copy").exists())

    def test_an_interrupt_ends_the_work(self):
        # The signal is raised by the first report and met by the next one.
        script = (
            "import signal, sys\nfrom gabion import shards\n"
            "try:\n"
            "    shards.split(sys.argv[1], sys.argv[2], '4+2', block=4096,\n"
            "        progress=lambda *step: signal.raise_signal(signal.SIGINT))\n"
            "except KeyboardInterrupt:\n    print('interrupted')\n"
        )
        run = subprocess.run([sys.executable, "-c", script, self.source, self.shards],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.stdout, "interrupted\n", run.stderr)

    def test_loss_and_refusals(self):
        made = self.split()
        with self.assertRaisesRegex(gabion.Error, "exists"):
            self.split()
        self.split(force=True)
        with self.assertRaises(gabion.Error):
            shards.join(self.shards, made.shards[0], force=True)
        for path in made.shards[:3]:
            path.unlink()
        self.assertEqual(shards.verify(self.shards)[0].health, "unrecoverable")
        for call in (lambda: shards.join(self.shards, self.place / "copy"), lambda: shards.repair(self.shards)):
            with self.assertRaises(gabion.DataLoss):
                call()
        with self.assertRaises(OSError):
            shards.verify(self.place / "nothing")
        with self.assertRaises(OSError):
            shards.split(self.place / "nothing", self.shards, "4+2")


class Forecasts(unittest.TestCase):
    def test_numbers(self):
        three = gabion.forecast("3x")
        self.assertEqual((three.code, three.disks, three.overhead), ("3x", 3, 2.0))
        self.assertEqual(gabion.forecast("10+4", capacity=4e12, mtbf=1e6).mean_hours,
                         gabion.forecast(gabion.Code("10+4"), capacity="4TB", mtbf="1000000h").mean_hours)
        self.assertGreater(gabion.forecast("6+3", disks=18, grouped=True).nines, gabion.forecast("6+3", disks=18).nines)
        self.assertGreater(gabion.forecast("6+3").nines, gabion.forecast("6+3", checked=False).nines)
        self.assertEqual(gabion.forecast("300x").mean_hours, float("inf"))
        self.assertIn("e", gabion.forecast("300x").mean_hours_text)

    def test_refused(self):
        for named in ({"disks": 3}, {"mtbf": "no time"}, {"mtbf": "1h", "afr": "1%"}, {"silent": 7}, {"capacity": -1}):
            with self.assertRaises(gabion.Error, msg=str(named)):
                gabion.forecast("6+3", **named)
        with self.assertRaises(gabion.Error):
            gabion.forecast("six")


if __name__ == "__main__":
    unittest.main()
