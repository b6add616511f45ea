"""The type of objects in use: the leaf frame of their stack. A wrong type is worse than none."""

from __future__ import annotations

from collections import Counter

PROGRAM = """
import datetime, decimal
import spanprof

class Cart:
    def __init__(self, number):
        self.number = number

class Item:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

class Tiny:
    __slots__ = ()

class Registry(type):
    pass

class Money(decimal.Decimal, metaclass=Registry):
    pass

COUNT = 6000
classes = [Cart, Item, Tiny, str, int, dict, Registry, Money] * 20

def carts(): return [Cart(n) for n in range(COUNT)]
def items(): return [Item(n) for n in range(COUNT)]
def tinies(): return [Tiny() for n in range(COUNT)]
def moneys(): return [Money(n) for n in range(COUNT)]
def texts(): return [f"text number {n}" for n in range(COUNT)]
def wide(): return [f"\\u20ac number {n}" for n in range(COUNT)]
def binary(): return [b"%d bytes" % n for n in range(COUNT)]
def numbers(): return [n << 70 for n in range(COUNT)]
def floats(): return [n * 1.5 for n in range(COUNT)]
def tuples(): return [(n, n) for n in range(COUNT)]
def times(): return [datetime.timedelta(n) for n in range(COUNT)]
def functions(): return [lambda: n for n in range(COUNT)]
def dicts(): return [{} for n in range(COUNT)]
def lists_of_classes(): return [list(classes) for n in range(COUNT // 10)]

decimal.getcontext()
spanprof.start(heap=True, cpu=False, heap_interval=1024, cpu_budget=0)
kept = [make() for make in (carts, items, tinies, moneys, texts, wide, binary, numbers, floats, tuples, times, functions, dicts)]
kept.append(lists_of_classes())
kept.append([bytearray(b"ABCDEFGHIJKLMNOP" * 100) for n in range(COUNT // 10)])
assert spanprof.flush()
assert spanprof.stats()["clock.guarded_faults"] == 0
spanprof.stop()
"""

EXPECTED = {
    "carts": "Cart",
    "items": "Item",
    "tinies": "Tiny",
    "moneys": "Money",
    "texts": "str",
    "wide": "str",
    "binary": "bytes",
    "numbers": "int",
    "floats": "float",
    "tuples": "tuple",
    "times": "datetime.timedelta",
    "functions": "function",
    "dicts": "dict",
    "lists_of_classes": "list",
}
#: What else the functions create: the list of all objects, and the parts of the objects.
PARTS = {"list", "int", "dict", "cell", "tuple"}


def test_the_leaf_of_objects_in_use_is_their_type(run_target):
    profiles = run_target(PROGRAM).profiles("heap")
    profiles.samples = profiles.files[0].samples
    for function, expected in EXPECTED.items():
        by_leaf: Counter = Counter()
        for sample in profiles.through(function):
            leaf = sample.frames[0]
            is_function = leaf.split(".")[0] in (function, "__init__") or "<" in leaf
            by_leaf["buffer" if is_function else leaf] += sample.count
        assert by_leaf[expected] > 0, (function, by_leaf)
        assert set(by_leaf) <= PARTS | {"buffer", expected}, (function, by_leaf)
        if function != "lists_of_classes":
            assert by_leaf[expected] > 0.8 * by_leaf["buffer"], (function, by_leaf)
