"""``tag_wrapper`` as a decorator: functions, coroutine functions, generator and asynchronous generator functions, methods of every
kind. A call of any other callable is labeled with the coroutine or the generator that it returns.

A generator's labels are current only while its body runs, never in the code that iterates over it. Not here: the scope itself
(``src/objects/scope_calls.rs``).
"""

from __future__ import annotations

import functools
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, AsyncGenerator, Callable, Coroutine, Generator

#: ``CO_ITERABLE_COROUTINE``: the flag of functions that ``types.coroutine`` made awaitable.
_ITERABLE_COROUTINE = 0x100


def decorate(scope: Any, function: Any) -> Any:
    """``function`` with each call inside ``scope``."""
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorate(scope, function.__func__))
    if isinstance(function, property):
        functions = (function.fget, function.fset, function.fdel)
        return type(function)(*(each and decorate(scope, each) for each in functions), function.__doc__)
    if isinstance(function, functools.cached_property):
        return type(function)(decorate(scope, function.func))
    if isinstance(function, type) or not callable(function) and hasattr(type(function), "__get__"):
        import logging

        logging.getLogger("spanprof").warning(
            "tag_wrapper() decorates functions, got the %s; it is unchanged and has no labels: decorate its methods",
            f"class {function.__qualname__}" if isinstance(function, type) else type(function).__name__,
        )
        return function
    if not callable(function):
        raise TypeError(f"tag_wrapper decorates a function, got {type(function).__name__}")
    import inspect  # Not at the top: it takes longer to import than the rest of the package.

    # An instance of a class with ``__call__``.
    called = function if inspect.isroutine(function) or isinstance(function, functools.partial) else type(function).__call__
    if inspect.isasyncgenfunction(called):
        return _async_generator_function(scope, function)
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(function):
        return _coroutine_function(scope, function)
    if inspect.isgeneratorfunction(called):
        labeled = _generator_function(scope, function)
        is_awaitable = getattr(getattr(called, "__code__", None), "co_flags", 0) & _ITERABLE_COROUTINE
        return types.coroutine(labeled) if is_awaitable else labeled
    return _function(scope, function)


def _function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            result = function(*args, **kwargs)
        wrap = _RESULTS.get(type(result))
        return result if wrap is None else _with_name(wrap(scope, result), result)

    return labeled


def _with_name(labeled: Any, original: Any) -> Any:
    labeled.__name__, labeled.__qualname__ = original.__name__, original.__qualname__
    return labeled


def _coroutine_function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    async def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            return await function(*args, **kwargs)

    return labeled


async def _coroutine(scope: Any, coroutine: Coroutine) -> Any:
    with scope:
        return await coroutine


def _generator_function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            generator = function(*args, **kwargs)
        return (yield from _generator(scope, generator))

    return labeled


def _generator(scope: Any, generator: Generator) -> Any:
    step: Any = generator.send
    argument: Any = None
    while True:
        try:
            with scope:
                value = step(argument)
        except StopIteration as stop:
            return stop.value
        try:
            step, argument = generator.send, (yield value)
        except GeneratorExit:
            with scope:
                generator.close()
            raise
        except BaseException as error:
            step, argument = generator.throw, error


def _async_generator_function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    async def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            generator = function(*args, **kwargs)
        step, argument = generator.asend, None
        while True:
            try:
                with scope:
                    value = await step(argument)
            except StopAsyncIteration:
                return
            try:
                step, argument = generator.asend, (yield value)
            except GeneratorExit:
                with scope:
                    await generator.aclose()
                raise
            except BaseException as error:
                step, argument = generator.athrow, error

    return labeled


def _async_generator(scope: Any, generator: AsyncGenerator) -> Any:
    return _async_generator_function(scope, lambda: generator)()


#: What labels a result of a call, by its type. Other awaitables, such as tasks, run by themselves.
_RESULTS: dict[type, Callable[[Any, Any], Any]] = {
    types.CoroutineType: _coroutine,
    types.GeneratorType: _generator,
    types.AsyncGeneratorType: _async_generator,
}
