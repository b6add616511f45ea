"""The handler reads the id in the context variable: among any number of variables, across tasks and threads."""

import asyncio
import contextvars
import random
import threading
import unittest

from native_testing import runtime, variable


def captured_id():
    """The context id of a walk, which must be equal outside and inside a handler."""
    outside, inside = runtime.walk()[2], runtime.walk_in_handler()[2]
    assert outside == inside, (outside, inside)
    return outside


def folded(value):
    """A hash, folded as in the context table."""
    return (value & 0xFFFFFFFF) ^ ((value >> 32) & 0xFFFFFFFF)


class Contexts(unittest.TestCase):
    def test_an_empty_context_has_no_id(self):
        self.assertEqual(contextvars.Context().run(captured_id), 0)

    def test_every_size_of_integer(self):
        values = [0, 1, 255, 256, 257, 2**30 - 1, 2**30, 2**30 + 1, 2**59, 2**60 - 1, 2**60, 2**63, 2**64 - 1]
        values += [random.Random(3).randrange(2**64) for _ in range(200)]
        for value in values:
            self.assertEqual(runtime.integer(value), value)
            context = contextvars.Context()
            context.run(variable.set, value)
            self.assertEqual(context.run(captured_id), value)

    def test_a_value_that_is_not_an_id_gives_no_context(self):
        def unreadable():
            return int(dict(runtime.statistics())["python.contexts_unreadable"])

        for value in [-1, -(2**40), 2**64, 2**90, 2**91, True, 1.0, "1", None]:
            before = unreadable()
            context = contextvars.Context()
            context.run(variable.set, value)
            self.assertEqual(context.run(captured_id), 0, value)
            self.assertEqual(unreadable(), before + 2, value)

    def test_among_any_number_of_other_variables(self):
        others = [contextvars.ContextVar(f"other.{number}") for number in range(1500)]
        for count in [0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 40, 41, 100, 400, 1500]:
            context = contextvars.Context()
            for number, other in enumerate(others[:count]):
                context.run(other.set, -number)
            self.assertEqual(context.run(captured_id), 0, f"{count} others, ours unset")
            context.run(variable.set, count + 1)
            self.assertEqual(context.run(captured_id), count + 1)
            for other in others[:count]:
                context.run(other.set, None)
            self.assertEqual(context.run(captured_id), count + 1, "after each of the others was set again")

    def test_a_variable_whose_hash_collides_with_another(self):
        known, pair = {}, None
        while pair is None:
            candidate = contextvars.ContextVar(f"colliding.{len(known)}")
            other = known.setdefault(folded(hash(candidate)), candidate)
            if other is not candidate:
                pair = other, candidate
        first, second = pair
        context = contextvars.Context()
        context.run(first.set, 11)
        context.run(second.set, 22)
        for number in range(40):
            context.run(contextvars.ContextVar(f"beside.{number}").set, number)
        try:
            self.assertEqual(runtime.use_context_variable(first), "context_variable")
            self.assertEqual(context.run(captured_id), 11)
            self.assertEqual(runtime.use_context_variable(second), "context_variable")
            self.assertEqual(context.run(captured_id), 22)
        finally:
            self.assertEqual(runtime.use_context_variable(variable), "context_variable")

    def test_set_and_reset_nest(self):
        def body():
            self.assertEqual(captured_id(), 0)
            outer = variable.set(1)
            inner = variable.set(2)
            self.assertEqual(captured_id(), 2)
            variable.reset(inner)
            self.assertEqual(captured_id(), 1)
            variable.reset(outer)
            self.assertEqual(captured_id(), 0)

        contextvars.Context().run(body)

    def test_tasks_keep_their_own_ids(self):
        async def request(number):
            variable.set(number)
            for _ in range(5):
                await asyncio.sleep(0)
                self.assertEqual(captured_id(), number)
                await asyncio.gather(child(number), child(number))
            return True

        async def child(number):
            await asyncio.sleep(0)
            self.assertEqual(captured_id(), number)

        async def main():
            return await asyncio.gather(*(request(number) for number in range(1, 101)))

        self.assertEqual(contextvars.Context().run(asyncio.run, main()), [True] * 100)

    def test_a_new_thread_has_no_id_and_its_own_does_not_leak(self):
        ids = {}

        def body(number):
            ids[number] = [captured_id()]
            variable.set(number)
            ids[number].append(captured_id())

        def main():
            variable.set(99)
            threads = [threading.Thread(target=body, args=(number,)) for number in range(1, 9)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(captured_id(), 99)

        contextvars.Context().run(main)
        inherits = getattr(__import__("sys").flags, "thread_inherit_context", 0)
        self.assertEqual(ids, {number: [99 if inherits else 0, number] for number in range(1, 9)})

    def test_an_unreadable_variable_falls_back_to_the_thread_table(self):
        try:
            self.assertEqual(runtime.use_context_variable(object()), "thread_table")
            self.assertIn("thread_contexts", dict(runtime.statistics())["python.degraded"])
            self.assertEqual(runtime.set_thread_context(5), 0)
            self.assertEqual(captured_id(), 5)
            other = []
            thread = threading.Thread(target=lambda: other.append(captured_id()))
            thread.start()
            thread.join()
            self.assertEqual(other, [0])
            self.assertEqual(runtime.set_thread_context(0), 5)
            self.assertEqual(captured_id(), 0)
        finally:
            self.assertEqual(runtime.use_context_variable(variable), "context_variable")


if __name__ == "__main__":
    unittest.main()
