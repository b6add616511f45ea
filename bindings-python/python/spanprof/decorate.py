"""``tag_wrapper`` as a decorator: functions, coroutine functions, generator and asynchronous generator functions.

A generator's labels are current only while its body runs, never in the code that iterates over it. Not here: the scope itself
(``src/ffi/scope_calls.rs``).
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable


def decorate(scope: Any, function: Callable) -> Callable:
    """``function`` with each call inside ``scope``."""
    if not callable(function):
        raise TypeError(f"tag_wrapper decorates a function, got {type(function).__name__}")
    if isinstance(function, type):
        import logging

        logging.getLogger("spanprof").warning(
            "tag_wrapper() decorates functions, got the class %s; it is unchanged and has no labels: decorate its methods",
            function.__qualname__,
        )
        return function
    import inspect  # Not at the top: it takes longer to import than the rest of the package.

    if inspect.isasyncgenfunction(function):
        return _async_generator_function(scope, function)
    if inspect.iscoroutinefunction(function):
        return _coroutine_function(scope, function)
    if inspect.isgeneratorfunction(function):
        return _generator_function(scope, function)
    return _function(scope, function)


def _function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            return function(*args, **kwargs)

    return labeled


def _coroutine_function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    async def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            return await function(*args, **kwargs)

    return labeled


def _generator_function(scope: Any, function: Callable) -> Callable:
    @functools.wraps(function)
    def labeled(*args: Any, **kwargs: Any) -> Any:
        with scope:
            generator = function(*args, **kwargs)
        step, argument = generator.send, None
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

    return labeled


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
