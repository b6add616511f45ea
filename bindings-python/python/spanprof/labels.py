"""Labels of samples: ``tag_wrapper`` for a scope, ``Labels`` for labels prepared once, ``bind`` for work that runs elsewhere.

``tag_wrapper`` and the ``Scope`` that it returns are C types of the native module, implemented in Rust:
``src/objects/scope_calls.rs`` (entry points), ``src/objects/scope.rs`` (open scopes), ``src/context.rs`` (context ids).
``Labels`` is ``src/convert.rs``. ``_spanprof.pyi`` has the signatures, ``decorate.py`` the decorator, ``noop.py`` the version
without the native module.
"""

from __future__ import annotations

import functools

from .interruptions import is_interruption
from .native import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # Annotations only: typing costs more to import than this package.
    from typing import Any, Callable, TypeVar

    from ._spanprof import Labels, tag_wrapper

    _Function = TypeVar("_Function", bound=Callable[..., Any])
else:
    Labels = native.Labels
    tag_wrapper = native.tag_wrapper


def bind(function: _Function) -> _Function:
    """``function``, bound to the labels and the span that are current now.

    Each call runs under them, on any thread and any number of times, instead of the caller's, which are restored afterwards.
    Bound outside all scopes, it runs without labels. A coroutine function is bound for the whole run of its coroutines. A
    generator function, also an asynchronous one, is bound for the call that creates the generator only, as with
    ``contextvars.Context.run``: the body runs under the labels of the code that iterates over it. Bind that code, or decorate
    the generator function with ``tag_wrapper``.
    """
    if native.variable is None:
        return function
    call: Any = native.BoundCall(function)
    import inspect  # Not at the top: it takes longer to import than the rest of the package.

    return _bound_coroutine_function(function, call) if inspect.iscoroutinefunction(function) else call


def _bound_coroutine_function(function: Callable, call: Any) -> Any:
    # `call` is used for its context only, which stays pinned while it lives.
    @functools.wraps(function)
    async def bound(*args: Any, **kwargs: Any) -> Any:
        token = native.variable.set(call.context)
        try:
            return await function(*args, **kwargs)
        finally:
            try:
                native.variable.reset(token)
            except ValueError as error:  # Closed in another `Context`, which has its own labels.
                if is_interruption(error):
                    raise

    return bound
