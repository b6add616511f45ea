"""Label scopes: which labels are current, for every way to enter and leave a scope. Needs no running profiler."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import gc
import threading
import weakref

import pytest
import spanprof
from spanprof import _spanprof as native


def labels() -> dict[str, str]:
    return native.describe()["labels"]


def test_labels_are_current_inside_the_scope_and_gone_after_it():
    assert labels() == {}
    with spanprof.tag_wrapper({"endpoint": "/cart"}):
        assert labels() == {"endpoint": "/cart"}
    assert labels() == {}


def test_inner_scopes_add_and_override_and_the_outer_labels_are_restored():
    with spanprof.tag_wrapper({"a": "1", "b": "1"}):
        with spanprof.tag_wrapper({"b": "2", "c": "2"}):
            assert labels() == {"a": "1", "b": "2", "c": "2"}
        assert labels() == {"a": "1", "b": "1"}
    assert labels() == {}


def test_an_exception_passes_through_and_ends_the_scope():
    with pytest.raises(KeyError):
        with spanprof.tag_wrapper({"a": "1"}):
            raise KeyError("mine")
    assert labels() == {}


def test_one_scope_object_can_be_entered_again_and_inside_itself():
    scope = spanprof.tag_wrapper({"a": "1"})
    for _ in range(3):
        with scope:
            with scope:
                assert labels() == {"a": "1"}
            assert labels() == {"a": "1"}
        assert labels() == {}


def test_a_scope_object_shared_by_interleaved_tasks_restores_each_task():
    scope = spanprof.tag_wrapper({"shared": "yes"})

    async def task(number: int) -> None:
        with spanprof.tag_wrapper({"task": str(number)}):
            for _ in range(5):
                with scope:
                    await asyncio.sleep(0.001 * (number % 7))
                    assert labels() == {"shared": "yes", "task": str(number)}
                    with scope:
                        await asyncio.sleep(0)
                        assert labels() == {"shared": "yes", "task": str(number)}
                assert labels() == {"task": str(number)}
        assert labels() == {}

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(200)))

    asyncio.run(main())


def test_scopes_left_out_of_order_remove_only_their_own_labels():
    outer = spanprof.tag_wrapper({"outer": "1"})
    inner = spanprof.tag_wrapper({"inner": "1"})
    outer.__enter__()
    inner.__enter__()
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert labels() == {}


def test_a_scope_left_in_another_context_changes_nothing_there_and_never_raises():
    scope = spanprof.tag_wrapper({"request": "one"})
    entered = contextvars.copy_context()
    entered.run(scope.__enter__)
    with spanprof.tag_wrapper({"request": "two"}):
        scope.__exit__(None, None, None)
        assert labels() == {"request": "two"}
    assert labels() == {}


def test_leaving_a_scope_that_was_never_entered_does_nothing():
    spanprof.tag_wrapper({"a": "1"}).__exit__(None, None, None)
    assert labels() == {}


def test_async_with_attaches_labels():
    async def main() -> None:
        async with spanprof.tag_wrapper({"a": "1"}) as value:
            assert value is None
            await asyncio.sleep(0)
            assert labels() == {"a": "1"}
        assert labels() == {}

    asyncio.run(main())


def test_exit_stacks_accept_scopes():
    with contextlib.ExitStack() as stack:
        stack.enter_context(spanprof.tag_wrapper({"a": "1"}))
        stack.enter_context(spanprof.tag_wrapper({"b": "2"}))
        assert labels() == {"a": "1", "b": "2"}
    assert labels() == {}

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(spanprof.tag_wrapper({"a": "1"}))
            assert labels() == {"a": "1"}
        assert labels() == {}

    asyncio.run(main())


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


def test_an_async_generator_finalized_by_the_event_loop_changes_no_other_task():
    async def leaking():
        with spanprof.tag_wrapper({"generator": "yes"}):
            yield 1
            yield 2

    async def other(number: int) -> None:
        with spanprof.tag_wrapper({"task": str(number)}):
            for _ in range(20):
                await asyncio.sleep(0)
                assert labels() == {"task": str(number)}

    async def abandon() -> None:
        async for _ in leaking():
            break

    async def main() -> None:
        others = [asyncio.create_task(other(number)) for number in range(20)]
        await asyncio.gather(*(asyncio.create_task(abandon()) for _ in range(20)))
        gc.collect()
        await asyncio.gather(*others)

    asyncio.run(main())
    assert labels() == {}


def test_tasks_callbacks_and_threads_of_asyncio_inherit_the_current_labels():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        with spanprof.tag_wrapper({"a": "1"}):
            task = asyncio.create_task(_labels_later())
            loop.call_soon(lambda: called.set_result(labels()))
            in_thread = await asyncio.to_thread(labels)
            in_executor = await loop.run_in_executor(None, labels)
        assert labels() == {}
        assert await task == {"a": "1"}
        assert await called == {"a": "1"}
        assert in_thread == {"a": "1"}
        assert in_executor == {"a": "1"}
        assert await asyncio.gather(_labels_later(), _labels_later()) == [{}, {}]

    asyncio.run(main())


async def _labels_later() -> dict:
    await asyncio.sleep(0.001)
    return labels()


def test_calls_submitted_to_a_thread_pool_carry_the_labels_and_leave_none_behind():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with spanprof.tag_wrapper({"a": "1"}):
            labeled = pool.submit(labels)
            partial = pool.submit(functools.partial(labels))
            mapped = pool.map(lambda _: labels(), range(3))
        assert labeled.result() == partial.result() == {"a": "1"}
        assert list(mapped) == [{"a": "1"}] * 3
        assert pool.submit(labels).result() == {}


def test_an_exception_of_a_submitted_call_reaches_its_future():
    def fail() -> None:
        raise KeyError("mine")

    with concurrent.futures.ThreadPoolExecutor(1) as pool, spanprof.tag_wrapper({"a": "1"}):
        with pytest.raises(KeyError):
            pool.submit(fail).result()


def test_a_plain_thread_starts_without_labels():
    seen = []
    with spanprof.tag_wrapper({"a": "1"}):
        thread = threading.Thread(target=lambda: seen.append(labels()))
        thread.start()
        thread.join()
    assert seen == [{}]


def test_trace_and_span_ids_become_the_link_and_no_labels():
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with spanprof.tag_wrapper({"trace_id": trace_id, "span_id": span_id, "a": "1"}):
        described = native.describe()
        assert described["labels"] == {"a": "1"}
        assert (described["trace_id"], described["span_id"]) == (trace_id, span_id)
        with spanprof.tag_wrapper({"b": "2"}):
            assert native.describe()["trace_id"] == trace_id
    assert native.describe()["trace_id"] == ""


def test_pyroscopes_thread_tags_stay_until_removed_with_the_same_value():
    spanprof.add_thread_tag("shard", "7")
    spanprof.add_thread_tag("pod", "a")
    assert labels() == {"shard": "7", "pod": "a"}
    spanprof.remove_thread_tag("shard", "8")
    assert labels() == {"shard": "7", "pod": "a"}
    spanprof.remove_thread_tag("shard", "7")
    spanprof.remove_thread_tag("pod", "a")
    assert labels() == {}


def test_only_tag_wrapper_creates_scopes():
    with pytest.raises(TypeError, match="tag_wrapper"):
        native.Scope()
    with pytest.raises(TypeError, match="exactly one function"):
        spanprof.tag_wrapper({})(1, 2)
    with pytest.raises(TypeError, match="decorates a function"):
        spanprof.tag_wrapper({})(1)


def test_a_hundred_thousand_scopes_leave_no_reference_behind():
    import sys

    scope = spanprof.tag_wrapper({"a": "1"})
    none_before = sys.getrefcount(None)
    for _ in range(100_000):
        with scope:
            with spanprof.tag_wrapper({"b": "2"}):
                pass
    assert sys.getrefcount(scope) <= 3
    assert abs(sys.getrefcount(None) - none_before) < 1000


def test_the_methods_of_a_scope_reject_other_classes():
    scope = spanprof.tag_wrapper({"a": "1"})
    enter, leave = scope.__enter__, scope.__exit__
    enter()
    assert labels() == {"a": "1"}
    leave(None, None, None)
    type(scope).__enter__(scope)
    type(scope).__exit__(scope, None, None, None)
    assert labels() == {}
    for name in ("__enter__", "__exit__"):
        descriptor = vars(type(scope))[name]
        with pytest.raises(TypeError):
            descriptor.__get__(5, int)
        with pytest.raises(TypeError):
            type(descriptor)()
        with pytest.raises(TypeError):
            type(getattr(scope, name))()
    many = [scope.__enter__ for _ in range(100)]
    assert len({id(method) for method in many}) == 100


def test_an_open_scope_referenced_by_its_own_context_is_garbage_collected():
    class Sentinel:
        pass

    holder = contextvars.ContextVar("holder")
    ends = []

    def suspended(seen: Sentinel):
        with spanprof.tag_wrapper({"a": "1"}):
            try:
                yield seen
            finally:
                ends.append("closed")

    def leave_open() -> weakref.ref:
        seen = Sentinel()
        generator = suspended(seen)
        holder.set(generator)
        next(generator)
        return weakref.ref(seen)

    seen = contextvars.Context().run(leave_open)
    gc.collect()
    assert seen() is None and ends == ["closed"]


def test_a_context_keeps_no_entry_after_its_outermost_scope_has_ended():
    def count() -> int:
        before = len(contextvars.copy_context())
        with spanprof.tag_wrapper({"a": "1"}):
            assert len(contextvars.copy_context()) == before + 1
        return len(contextvars.copy_context()) - before

    assert contextvars.Context().run(count) == 0
