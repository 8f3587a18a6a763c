"""Runs tests of PyECLib and prints a line per test: its name, how it ended and why.

Subtests that fail have lines of their own. Further lines name the files of a library that a codec has loaded.
"""

import random
import sys
import unittest


class Results(unittest.TestResult):
    """Lines of all tests."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def add(self, test, how, why=""):
        self.lines.append(f"{test.id()}\t{how}\t{why}")

    def addSuccess(self, test):
        self.add(test, "passed")

    def addSkip(self, test, reason):
        self.add(test, "skipped", reason)

    def addFailure(self, test, error):
        self.add(test, "failed", reason(error))

    def addError(self, test, error):
        self.add(test, "error", reason(error))

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.add(subtest, "failed", reason(error))


def reason(error):
    """Class and message of an exception, in one line."""
    lines = str(error[1]).strip().splitlines() or [""]
    return f"{error[0].__name__}: {lines[-1][:200]}"


def chosen(suite, without):
    """The tests of a suite but those of the given names."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from chosen(part, without)
        elif part.id().rsplit(".", 1)[-1] not in without:
            yield part


def main():
    directory, backend, library, without, *names = sys.argv[1:]
    sys.path.insert(0, directory)
    # Contents and losses that tests draw are the same in every run.
    random.seed(1)
    results = Results()
    # As a list: a suite of the loader takes its tests apart while it runs.
    tests = list(chosen(unittest.defaultTestLoader.loadTestsFromNames(names), without.split(",")))
    unittest.TestSuite(tests).run(results)
    for line in results.lines:
        print("test", line, sep="\t")
    from pyeclib.ec_iface import ECDriver

    driver = ECDriver(k=4, m=2, ec_type=backend)
    driver.encode(b"content" * 1000)
    with open("/proc/self/maps", encoding="ascii", errors="surrogateescape") as maps:
        files = {line.split()[-1] for line in maps if library in line.lower()}
    for file in sorted(files):
        print("loaded", file, sep="\t")


if __name__ == "__main__":
    main()
