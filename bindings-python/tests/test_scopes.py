"""Label scopes: which labels are current, for every way to enter and leave a scope. Needs no running profiler."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import gc
import threading
import tracemalloc
import weakref
from random import Random

import pytest
import spanprof
from spanprof import _spanprof as native
from spanprof import pyroscope


def labels() -> dict[str, str]:
    return native.describe()["labels"]


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


def test_a_scope_left_in_another_context_changes_nothing_there_and_never_raises():
    scope = spanprof.tag_wrapper({"request": "one"})
    entered = contextvars.copy_context()
    entered.run(scope.__enter__)
    with spanprof.tag_wrapper({"request": "two"}):
        scope.__exit__(None, None, None)
        assert labels() == {"request": "two"}
    assert labels() == {}


def test_a_stream_that_is_collected_during_another_request_with_equal_labels_changes_nothing_there():
    def stream():
        with spanprof.tag_wrapper({"endpoint": "/stream"}):
            yield 1

    def abandon() -> None:
        class Request:
            pass

        request = Request()
        request.body = stream()
        next(request.body)
        request.cycle = request

    def other_request() -> dict:
        with spanprof.tag_wrapper({"endpoint": "/stream"}):
            gc.collect()
            return labels()

    contextvars.copy_context().run(abandon)
    assert contextvars.copy_context().run(other_request) == {"endpoint": "/stream"}


def test_scopes_of_two_generators_in_one_loop_are_over_when_the_generators_are():
    def lines(key: str):
        with spanprof.tag_wrapper({"file": key, key: "yes"}):
            yield labels()
            yield labels()

    # The one that began first ends first.
    assert list(zip(lines("a"), lines("b")))[0] == ({"file": "a", "a": "yes"}, {"file": "b", "a": "yes", "b": "yes"})
    assert labels() == {}


def test_a_scope_that_ends_in_another_task_is_over_in_the_task_that_entered_it():
    async def pages():
        async with spanprof.tag_wrapper({"part": "pages"}):
            yield 1
            yield 2

    async def main() -> dict:
        generator = pages()
        await generator.__anext__()
        with spanprof.tag_wrapper({"outer": "yes"}):
            await asyncio.create_task(generator.aclose())
            return labels()

    assert asyncio.run(main()) == {"outer": "yes"}
    assert labels() == {}


def test_tasks_that_start_each_other_inside_scopes_keep_no_list_of_values():
    def bytes_in_use() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async def main() -> int:
        loop = asyncio.get_running_loop()
        sizes, done = [], loop.create_future()

        def step(left: int) -> None:
            with spanprof.tag_wrapper({"step": "again"}):
                if left % 1000 == 0:
                    sizes.append(bytes_in_use())
                loop.call_soon(step, left - 1) if left else done.set_result(sizes[-1] - sizes[0])

        step(5000)
        return await done

    tracemalloc.start()
    try:
        assert asyncio.run(main()) < 40_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(20))
def test_scopes_and_tags_in_any_order_leave_the_labels_of_those_that_are_open(seed):
    random = Random(seed)
    open_scopes: list = []
    tags: dict[str, str] = {}
    for _ in range(300):
        choice = random.random()
        if choice < 0.45 and len(open_scopes) < 8:
            added = {random.choice("abcd"): str(random.randrange(3)) for _ in range(random.randrange(1, 3))}
            scope = spanprof.tag_wrapper(added)
            scope.__enter__()
            open_scopes.append((scope, added))
        elif choice < 0.9 and open_scopes:
            scope, _ = open_scopes.pop(random.randrange(len(open_scopes)))
            scope.__exit__(None, None, None)
        elif "tag" in tags:
            pyroscope.remove_thread_tag("tag", tags.pop("tag"))
        else:
            tags["tag"] = str(random.randrange(3))
            pyroscope.add_thread_tag("tag", tags["tag"])
        expected = dict(tags)
        for _, added in open_scopes:
            expected.update(added)
        assert labels() == expected
    for scope, _ in open_scopes:
        scope.__exit__(None, None, None)
    for tag, value in tags.items():
        pyroscope.remove_thread_tag(tag, value)
    assert labels() == {}


def test_leaving_a_scope_that_was_never_entered_does_nothing():
    spanprof.tag_wrapper({"a": "1"}).__exit__(None, None, None)
    assert labels() == {}


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


def test_a_plain_thread_starts_without_labels():
    seen = []
    with spanprof.tag_wrapper({"a": "1"}):
        thread = threading.Thread(target=lambda: seen.append(labels()))
        thread.start()
        thread.join()
    assert seen == [{}]


def test_pyroscopes_thread_tags_stay_until_removed_with_the_same_value():
    pyroscope.add_thread_tag("shard", "7")
    pyroscope.add_thread_tag("pod", "a")
    assert labels() == {"shard": "7", "pod": "a"}
    pyroscope.remove_thread_tag("shard", "8")
    assert labels() == {"shard": "7", "pod": "a"}
    pyroscope.remove_thread_tag("shard", "7")
    pyroscope.remove_thread_tag("pod", "a")
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


def test_an_exception_of_a_submitted_call_reaches_its_future():
    def fail() -> None:
        raise KeyError("mine")

    with concurrent.futures.ThreadPoolExecutor(1) as pool, spanprof.tag_wrapper({"a": "1"}):
        with pytest.raises(KeyError):
            pool.submit(fail).result()
