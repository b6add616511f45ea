"""The walk gives exactly the interpreter's frames: for every kind of call, outside and inside a handler."""

import asyncio
import contextlib
import functools
import sys
import unittest

from native_testing import own_stack, runtime, without_columns


class Stacks(unittest.TestCase):
    maxDiff = None

    def assert_same(self, walked, expected):
        outcome, frames, _, truncated = walked
        self.assertEqual(outcome, "walked")
        self.assertFalse(truncated)
        self.assertEqual(without_columns(frames), expected)

    def check_walk(self):
        walked, expected = runtime.walk(), own_stack()
        self.assert_same(walked, expected)
        walked, expected = runtime.walk_in_handler(), own_stack()
        self.assert_same(walked, expected)
        return expected

    def test_a_plain_function(self):
        def outer():
            return inner()

        def inner():
            return self.check_walk()

        names = [frame[0].rpartition(".")[2] for frame in outer()]
        self.assertEqual(names[:4], ["check_walk", "inner", "outer", "test_a_plain_function"])

    def test_the_line_is_that_of_the_call_and_not_of_the_statement(self):
        def wide(*values):
            return values

        wide(
            1,
            self.check_walk(),
            [
                self.check_walk(),
            ],
        )

    def test_recursion_to_the_depth_limit_and_beyond(self):
        def down(depth):
            if depth == 0:
                return runtime.walk(64), own_stack(), runtime.walk(512)
            return down(depth - 1)

        cut, expected, whole = down(100)
        self.assertEqual(cut[0], "walked")
        self.assertTrue(cut[3])
        self.assertEqual(len(cut[1]), 64)
        self.assertEqual([frame[0] for frame in cut[1]], [frame[0] for frame in expected[:64]])
        self.assertFalse(whole[3])
        self.assertEqual(len(whole[1]), len(expected))

    def test_a_generator_at_each_of_its_turns(self):
        def numbers():
            self.check_walk()
            yield 1
            self.check_walk()
            yield from inner()
            self.check_walk()

        def inner():
            yield self.check_walk()
            yield self.check_walk()

        self.assertEqual(len(list(numbers())), 3)

    def test_a_generator_thrown_into_and_closed(self):
        def holding():
            try:
                yield
            except KeyError:
                self.check_walk()
                yield
            finally:
                self.check_walk()

        generator = holding()
        next(generator)
        generator.throw(KeyError("x"))
        generator.close()

    def test_coroutines_show_the_whole_chain_of_awaits(self):
        async def leaf():
            await asyncio.sleep(0)
            return self.check_walk()

        async def middle():
            return await leaf()

        async def root():
            first, second = await asyncio.gather(middle(), asyncio.create_task(middle()))
            return first

        names = [frame[0].rpartition(".")[2] for frame in asyncio.run(root())]
        self.assertEqual(names[:3], ["check_walk", "leaf", "middle"])

    def test_async_generators_and_context_managers(self):
        @contextlib.asynccontextmanager
        async def scope():
            self.check_walk()
            yield
            self.check_walk()

        async def counted():
            for number in range(3):
                self.check_walk()
                yield number

        async def root():
            async with scope():
                return [number async for number in counted() if self.check_walk()]

        self.assertEqual(asyncio.run(root()), [0, 1, 2])

    def test_exceptions_in_flight(self):
        def failing():
            try:
                raise ValueError("x")
            except ValueError:
                self.check_walk()
                try:
                    raise
                finally:
                    self.check_walk()

        with self.assertRaises(ValueError):
            failing()
        with contextlib.suppress(ZeroDivisionError):
            try:
                1 / 0
            finally:
                self.check_walk()

    def test_comprehensions_and_lambdas(self):
        [self.check_walk() for _ in range(2)]
        {self.check_walk()[0]: None for _ in range(2)}
        list(self.check_walk() for _ in range(2))
        (lambda: self.check_walk())()
        [[self.check_walk() for _ in range(1)] for _ in range(1)]

    def test_calls_that_come_back_through_c(self):
        sorted([3, 1, 2], key=lambda _: len(self.check_walk()))
        list(map(lambda _: self.check_walk(), [1, 2]))
        max([1, 2], key=functools.partial(lambda tag, _: len(self.check_walk()), "tag"))
        functools.reduce(lambda a, b: self.check_walk(), [1, 2, 3])
        eval("check_walk()", {"check_walk": self.check_walk})
        exec("def f():\n  check_walk()\nf()", {"check_walk": self.check_walk})

    def test_methods_properties_and_constructors(self):
        check = self

        class Base:
            def __init__(self):
                check.check_walk()

            def __init_subclass__(cls):
                check.check_walk()

            @property
            def value(self):
                return check.check_walk()

            @classmethod
            def build(cls):
                check.check_walk()
                return cls()

            @staticmethod
            def plain():
                return check.check_walk()

            def __getattr__(self, name):
                return check.check_walk()

            def __call__(self):
                return check.check_walk()

            def __del__(self):
                check.check_walk()

            def __add__(self, other):
                return check.check_walk()

            def __iter__(self):
                check.check_walk()
                return iter(())

        class Derived(Base):
            check.check_walk()

            def __init__(self):
                super().__init__()
                check.check_walk()

        for _ in range(20):  # until the interpreter has specialized the calls
            thing = Derived.build()
            thing.value, thing.missing, thing.plain(), thing(), thing + 1, list(thing)
            del thing

    def test_closures_with_many_cells(self):
        def outer(a, b, c, d, e, f, g, h, i, j):
            def inner():
                return a, b, c, d, e, f, g, h, i, j, self.check_walk()

            return inner()

        for _ in range(20):
            outer(*range(10))

    def test_names_files_and_lines_of_generated_code(self):
        source = "\n" * 299 + "def größe():\n    return check_walk()\nresult = größe()\n"
        scope = {"check_walk": self.check_walk}
        exec(compile(source, "<shop/größe 名前 𝔘>", "exec"), scope)
        self.assertEqual(scope["result"][1][1:], ("<shop/größe 名前 𝔘>", 300, 301))

    def test_code_replaced_and_relocated(self):
        def subject():
            return self.check_walk()

        code = subject.__code__
        changes = dict(co_firstlineno=70_000, co_filename="moved.py", co_name="renamed")
        if sys.version_info >= (3, 11):
            changes["co_qualname"] = "somewhere.renamed"
        subject.__code__ = code.replace(**changes)
        self.assertEqual(subject()[1][1:3], ("moved.py", 70_000))

    def test_a_trace_function_sees_the_same_stack(self):
        def traced():
            return sum(range(3))

        seen = []

        def tracer(frame, event, argument):
            walked, expected = runtime.walk(), own_stack()
            seen.append((walked, expected))
            return tracer

        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            traced()
        finally:
            sys.settrace(before)
        self.assertGreater(len(seen), 2)
        for walked, expected in seen:
            self.assert_same(walked, expected)


if __name__ == "__main__":
    unittest.main()
