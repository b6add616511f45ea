"""`tag_wrapper` as a decorator of every kind of function. Needs no running profiler."""

from __future__ import annotations

import asyncio
import functools
import types

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


def test_a_decorated_call_labels_the_coroutine_or_generator_that_it_returns():
    label = spanprof.tag_wrapper({"a": "1"})

    def passing(function):
        @functools.wraps(function)
        def inner(*args):
            return function(*args)

        return inner

    async def coroutine() -> dict:
        await asyncio.sleep(0)
        return labels()

    @types.coroutine
    def old_style():
        yield from asyncio.sleep(0).__await__()
        return labels()

    class Handler:
        async def __call__(self) -> dict:
            return await coroutine()

    def generator():
        yield labels()

    async def async_generator():
        yield labels()

    async def main() -> None:
        for function in (coroutine, passing(coroutine), Handler(), old_style, functools.partial(coroutine)):
            assert await label(function)() == {"a": "1"}
            assert labels() == {}
        assert [seen async for seen in label(passing(async_generator))()] == [{"a": "1"}]

    asyncio.run(main())
    assert list(label(passing(generator))()) == [{"a": "1"}]
    created = label(passing(coroutine))()
    assert (created.__name__, asyncio.iscoroutine(created)) == ("coroutine", True)
    assert asyncio.run(created) == {"a": "1"}
    assert asyncio.iscoroutinefunction(label(Handler()))


def test_class_methods_static_methods_and_properties_are_decorated_like_functions():
    label = spanprof.tag_wrapper({"a": "1"})

    class Service:
        @label
        @classmethod
        def of_class(cls) -> tuple:
            return cls, labels()

        @label
        @staticmethod
        def static() -> dict:
            return labels()

        @label
        @property
        def value(self) -> dict:
            """The value."""
            return labels()

        @label
        @functools.cached_property
        def cached(self) -> dict:
            return labels()

    assert Service.of_class() == Service().of_class() == (Service, {"a": "1"})
    assert Service.static() == Service().static() == {"a": "1"}
    assert (Service().value, Service.value.__doc__) == ({"a": "1"}, "The value.")
    assert Service().cached == {"a": "1"}
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
