"""Line tables: for every instruction of real and generated code, the decoded position equals the interpreter's."""

import dis
import importlib.util
import random
import sys
import types
import unittest

from native_testing import name_of, runtime

MODULES = """argparse ast asyncio.base_events asyncio.tasks calendar collections concurrent.futures.thread contextlib
copy csv ctypes dataclasses datetime decimal difflib doctest email.message enum fractions functools http.client
http.server inspect ipaddress json.decoder logging multiprocessing.pool pathlib pickle pydoc random re shutil smtplib
socket statistics string subprocess tarfile tempfile textwrap threading tokenize traceback types typing unittest.case
urllib.parse uuid xml.etree.ElementTree zipfile""".split()


def codes_in(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def source_of(module):
    spec = importlib.util.find_spec(module)
    with open(spec.origin, encoding="utf-8") as file:
        return file.read()


def expected_positions(code):
    """The interpreter's own (line, column from 1) of each code unit; 0 for none."""
    units = len(code.co_code) // 2
    if sys.version_info >= (3, 11):
        return [(line or 0, 0 if column is None else column + 1) for line, _, column, _ in code.co_positions()]
    lines = [0] * units
    if sys.version_info >= (3, 10):
        for start, end, line in code.co_lines():
            for unit in range(start // 2, end // 2):
                lines[unit] = line or 0
    else:
        starts = list(dis.findlinestarts(code))
        for unit in range(units):
            reached = [line for offset, line in starts if offset <= unit * 2]
            lines[unit] = reached[-1] if reached else code.co_firstlineno
    return [(line, 0) for line in lines]


def random_program(seed):
    """A program with distant lines, wide columns, multi-line calls and backward jumps: all kinds of line table entries."""
    rng = random.Random(seed)
    lines = []

    def pad():
        lines.extend([""] * rng.choice([0, 0, 0, 1, 5, 130, 300]))

    def expression(depth):
        kind = rng.randrange(6) if depth else 0
        if kind == 0:
            return "x"
        if kind == 1:
            return "(" + "\n" * rng.choice([0, 1, 140]) + expression(depth - 1) + " + " + expression(depth - 1) + ")"
        if kind == 2:
            return "f(" + " " * rng.choice([0, 3, 90, 300]) + expression(depth - 1) + ")"
        if kind == 3:
            return "[" + expression(depth - 1) + " for y in z]"
        if kind == 4:
            return "(" + expression(depth - 1) + " if x else\n " + expression(depth - 1) + ")"
        return "(lambda a: " + expression(depth - 1) + ")"

    for number in range(rng.randrange(1, 6)):
        pad()
        lines.append(f"def f{number}(x, z=()):")
        for _ in range(rng.randrange(1, 8)):
            pad()
            lines.append(rng.choice([
                "    x = " + expression(4),
                "    for y in z: x = " + expression(2),
                "    while x:\n\n        x = " + expression(3),
                "    try:\n        x = " + expression(2) + "\n\n    finally:\n        z = " + expression(2),
                "    with x as z: return " + expression(3),
            ]))
    return "\n".join(lines) + "\n"


class Lines(unittest.TestCase):
    def compare(self, code):
        expected = expected_positions(code)
        name, file, first_line, found = runtime.positions(code, len(expected))
        self.assertEqual((name, file, first_line), (name_of(code), code.co_filename, code.co_firstlineno))
        if found != expected:
            unit = next(unit for unit, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
            self.fail(f"{code!r} unit {unit}: expected {expected[unit]}, found {found[unit]}")
        return len(expected)

    def test_every_instruction_of_the_standard_library(self):
        compared = 0
        for module in MODULES:
            code = compile(source_of(module), module, "exec", dont_inherit=True)
            # Each decoding starts at the beginning of the table: very long code would take minutes.
            compared += sum(self.compare(inner) for inner in codes_in(code) if len(inner.co_code) < 20_000)
        self.assertGreater(compared, 100_000)

    def test_generated_programs(self):
        compared = 0
        for seed in range(300):
            code = compile(random_program(seed), f"generated {seed}", "exec", dont_inherit=True)
            compared += sum(self.compare(inner) for inner in codes_in(code))
        self.assertGreater(compared, 20_000)

    def test_an_instruction_beyond_the_table_has_no_line_or_the_last(self):
        code = compile("x = 1\ny = 2\n", "short", "exec")
        *_, found = runtime.positions(code, 5000)
        self.assertIn(found[-1], [(0, 0), (2, 0)])


if __name__ == "__main__":
    unittest.main()
