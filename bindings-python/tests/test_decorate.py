"""`tag_wrapper` as a decorator of every kind of function. Needs no running profiler."""

from __future__ import annotations

import asyncio

import pytest
import spanprof
from spanprof import _spanprof as native


def labels() -> dict[str, str]:
    return native.describe()["labels"]


def test_a_decorated_function_keeps_its_name_arguments_and_result():
    @spanprof.tag_wrapper({"a": "1"})
    def add(left: int, right: int = 2) -> tuple:
        """Adds."""
        return left + right, labels()

    assert add(1) == (3, {"a": "1"})
    assert add(1, right=5) == (6, {"a": "1"})
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert labels() == {}


def test_a_decorated_method_gets_its_instance():
    class Service:
        name = "service"

        @spanprof.tag_wrapper({"a": "1"})
        def handle(self) -> tuple:
            return self.name, labels()

    assert Service().handle() == ("service", {"a": "1"})


def test_a_decorated_coroutine_function_is_labeled_while_it_runs():
    @spanprof.tag_wrapper({"a": "1"})
    async def handle(value: int) -> tuple:
        await asyncio.sleep(0)
        return value, labels()

    assert asyncio.iscoroutinefunction(handle)
    assert asyncio.run(handle(7)) == (7, {"a": "1"})
    assert labels() == {}


def test_a_decorated_generator_is_labeled_inside_and_never_in_the_loop_around_it():
    seen = []

    @spanprof.tag_wrapper({"a": "1"})
    def numbers():
        for number in range(3):
            seen.append(labels())
            sent = yield number
            seen.append(sent)
        return "done"

    assert [(number, labels()) for number in numbers()] == [(0, {}), (1, {}), (2, {})]
    assert seen == [{"a": "1"}, None] * 3

    generator = numbers()
    assert next(generator) == 0
    assert generator.send("hello") == 1
    assert seen[-2:] == ["hello", {"a": "1"}]
    with pytest.raises(KeyError):
        generator.throw(KeyError("into it"))
    assert labels() == {}

    def delegating():
        return (yield from numbers())

    generator = delegating()
    with pytest.raises(StopIteration) as stopped:
        while True:
            next(generator)
    assert stopped.value.value == "done"


def test_closing_a_decorated_generator_runs_its_cleanup_under_the_labels():
    cleaned = []

    @spanprof.tag_wrapper({"a": "1"})
    def numbers():
        try:
            yield 1
        finally:
            cleaned.append(labels())

    generator = numbers()
    next(generator)
    generator.close()
    assert cleaned == [{"a": "1"}]
    assert labels() == {}


def test_a_decorated_async_generator_is_labeled_inside_and_never_in_the_loop_around_it():
    @spanprof.tag_wrapper({"a": "1"})
    async def numbers():
        for number in range(3):
            await asyncio.sleep(0)
            assert labels() == {"a": "1"}
            yield number

    async def main() -> list:
        return [(number, labels()) async for number in numbers()]

    assert asyncio.run(main()) == [(0, {}), (1, {}), (2, {})]
